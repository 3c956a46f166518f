#!/bin/sh
# What the job of `regiondag update --cron` runs: nightly.sh PYTHON CODE LOG ARGUMENT...
# Calls `regiondag update ARGUMENT...` on the access point and adds what it says to LOG. CODE: the folder of our package.
# exit: that of regiondag
python=$1 code=$2 log=$3
shift 3
exec >>"$log" 2>&1 || exit 1
# These are about this job, whose folder goes away with it; DAGMan would take them over as settings.
for name in $(env | LC_ALL=C sed -n 's/^\(_CONDOR_[A-Za-z0-9_]*\)=.*/\1/p') TMPDIR TMP TEMP; do
    unset "$name"
done
# In the embedded pool's root folder the Python outside may lack its libraries; the one there has them.
"$python" -c 'import jinja2, netCDF4, yaml' 2>/dev/null || python=/usr/local/libexec/regiondag/python
date '+%Y-%m-%d %H:%M:%S %Z'
"$python" "$code" update "$@"
exit_code=$?
echo "exit code $exit_code"
exit $exit_code
