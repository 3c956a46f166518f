#!/bin/sh
# Refuse to finish an image that could not run a job, and write down what is in it.
set -eu

/usr/local/libexec/regiondag/python - <<'PYTHON'
import os
import netCDF4, numpy, scipy, sklearn, skopt, yaml, jinja2
if os.environ["OUTLET"] != "folder" and os.environ["ROLE"] == "worker":
    import numba
optimizer = skopt.Optimizer([(0.0, 1.0)], n_initial_points=1, random_state=1)
optimizer.tell(optimizer.ask(), 0.5)
if "openblas" not in open("/proc/self/maps").read():
    raise SystemExit("80-validate: NumPy does not use OpenBLAS; training would be ten times slower")
PYTHON

for tool in condor_master condor_submit_dag condor_dagman condor_q condor_status; do
    command -v "$tool" >/dev/null || { echo "80-validate: $tool is missing" >&2; exit 1; }
done

if [ "$OUTLET" != folder ]; then
    here=$(dirname "$(readlink -f "$0")")
    case $ROLE in
        worker) units=$(cd "$here/files/etc/systemd/system" && grep -l '^\[Install\]' -- *.service *.timer) settings="HAS_GPU STARTD_ATTRS" ;;
        manager) units="" settings="CONDOR_HOST ALLOW_ADVERTISE_STARTD" ;;
    esac
    for unit in condor.service $units; do
        systemctl is-enabled --quiet "$unit" || { echo "80-validate: $unit is not enabled" >&2; exit 1; }
    done
    if [ "$OUTLET" != machine ]; then # which may have another program for that
        systemctl is-enabled --quiet chrony || { echo "80-validate: chrony is not enabled" >&2; exit 1; }
        # -p: chronyd reads its settings, prints them and ends.
        chronyd -p -f /etc/chrony/chrony.conf | grep -qx 'makestep 1.0 3' ||
            { echo "80-validate: the clock is not set to jump at boot alone" >&2; exit 1; }
    fi
    # Reads what HTCondor will read; a mistake in a file of config.d shows here, not at the first boot.
    # shellcheck disable=SC2086 # words
    condor_config_val -verbose $settings >/dev/null || { echo "80-validate: HTCondor's configuration is wrong" >&2; exit 1; }
fi

version=$(dpkg-query --show --showformat '${Version}' condor)
# shellcheck source=/dev/null
suite=$(. /etc/os-release; echo "${VERSION_CODENAME:-unknown}")
{
    echo "HTCONDOR=${version%%[-+]*}"
    echo "PYTHON=$(python3 -c 'import platform; print(platform.python_version())')"
    echo "SUITE=$suite"
    cat /var/lib/regiondag/recorded
} >/etc/regiondag-image
