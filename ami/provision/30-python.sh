#!/bin/sh
# One Python for both sides: NumPy, SciPy and netCDF4 for jobs, scikit-learn and scikit-optimize for the manager.
#
# OpenBLAS, because the BLAS that NumPy would pull in multiplies matrices ten times more slowly.
# Debian has no scikit-optimize. Its wheels (requirements.txt; pure Python) are put beside this folder by whoever
# starts the recipe, in ../wheels, so that no image needs pip or a route to a package index.
set -eu

here=$(dirname "$(readlink -f "$0")")
libexec=/usr/local/libexec/regiondag

apt-get install -y --no-install-recommends \
    python3 python3-numpy python3-scipy python3-netcdf4 libopenblas0-pthread \
    python3-sklearn python3-joblib python3-threadpoolctl python3-packaging python3-yaml \
    python3-jinja2 python3-platformdirs python3-rich

packages=$(python3 -c 'import sys; print("/usr/local/lib/python%d.%d/dist-packages" % sys.version_info[:2])')
mkdir -p "$packages"
for wheel in "$here"/../wheels/*-none-any.whl; do
    if [ ! -e "$wheel" ]; then
        echo "30-python: no wheels in $(readlink -f "$here/..")/wheels; fetch them with:" \
            "pip download --no-deps --only-binary=:all: -r requirements.txt -d wheels" >&2
        exit 1
    fi
    # A pure wheel is a zip file of what belongs into dist-packages.
    python3 -m zipfile -e "$wheel" "$packages"
done
python3 -m compileall -q "$packages"

mkdir -p "$libexec"
ln -sfn /usr/bin/python3 "$libexec/python"
