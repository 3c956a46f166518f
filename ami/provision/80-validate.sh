#!/bin/sh
# Refuse to finish an image that could not run a job, and write down what is in it.
set -eu

/usr/local/libexec/regiondag/python - <<'PYTHON'
import netCDF4, numpy, scipy, sklearn, skopt, yaml, jinja2
optimizer = skopt.Optimizer([(0.0, 1.0)], n_initial_points=1, random_state=1)
optimizer.tell(optimizer.ask(), 0.5)
if "openblas" not in open("/proc/self/maps").read():
    raise SystemExit("80-validate: NumPy does not use OpenBLAS; training would be ten times slower")
PYTHON

for tool in condor_master condor_submit_dag condor_dagman condor_q condor_status; do
    command -v "$tool" >/dev/null || { echo "80-validate: $tool is missing" >&2; exit 1; }
done

version=$(dpkg-query --show --showformat '${Version}' condor)
# shellcheck source=/dev/null
suite=$(. /etc/os-release; echo "${VERSION_CODENAME:-unknown}")
{
    echo "HTCONDOR=${version%%[-+]*}"
    echo "PYTHON=$(python3 -c 'import platform; print(platform.python_version())')"
    echo "SUITE=$suite"
} >/etc/regiondag-image
