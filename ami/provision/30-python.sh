#!/bin/sh
# One Python for both sides: NumPy, SciPy and netCDF4 for jobs, scikit-learn and scikit-optimize for the manager.
#
# OpenBLAS, because the BLAS that NumPy would pull in multiplies matrices ten times more slowly.
# Debian has no scikit-optimize; its wheels are pure Python.
set -eu

here=$(dirname "$(readlink -f "$0")")
libexec=/usr/local/libexec/regiondag

apt-get install -y --no-install-recommends \
    python3 python3-numpy python3-scipy python3-netcdf4 libopenblas0-pthread \
    python3-sklearn python3-joblib python3-threadpoolctl python3-packaging python3-yaml \
    python3-jinja2 python3-platformdirs python3-rich

sh "$here/unpack-wheels.sh" "$here/requirements.txt"

mkdir -p "$libexec"
ln -sfn /usr/bin/python3 "$libexec/python"
