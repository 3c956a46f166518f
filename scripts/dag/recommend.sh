#!/bin/sh
# One file of recommendations on a worker: recommend.sh CODE PART ARGUMENT..., beside its inputs
# exit: nnlib's codes (0 written, 4 bad input, 75 the machine's fault)
# Both outputs exist from the start: HTCondor holds a job that does not bring what it promised.
code=$1 part=$2
shift 2
: >"$part.parquet"
: >"$part.json"
python=/usr/local/libexec/regiondag/python # what provisioned workers have
if [ -e python.bundle ]; then # job.python: bundle
    python=$(sh python.bundle) || exit 75
    export PYTHONNOUSERSITE=1
elif [ ! -x "$python" ]; then
    python=$(command -v python3) || {
        echo "recommend.sh: no Python on this machine; set job.python: bundle" >&2
        exit 75
    }
fi
exec "$python" "$code" recommend "$@" --out "$part.parquet" --report "$part.json"
