#!/bin/sh
# Fetch the wheels that the recipe unpacks on a machine that has booted: for Packer and EC2 Image Builder; and lay
# nnlib's kernels beside them, with which workers test their GPUs.
# (`regiondag bake image` fetches its own.)
#
# usage: wheels.sh [PYTHON]       version of the image's Python: 3.13 (default; Debian 13) or 3.14
# needs: pip of any Python ($PIP, else pip3), with a route to its package index
# makes: wheels/ beside this file, anew
set -eu

here=$(dirname "$(readlink -f "$0")")
python=${1:-3.13}
case $python in
    3.[0-9][0-9]) ;;
    *)
        echo "wheels.sh: seen '$python', legal: a version of Python such as 3.13" >&2
        exit 2
        ;;
esac

rm -rf "$here/wheels"
for list in "$here"/provision/requirements*.txt; do
    "${PIP:-pip3}" download --quiet --no-deps --only-binary=:all: --python-version "$python" --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --requirement "$list" --dest "$here/wheels"
done
for kernels in "$here/../kernels" "$here/../../nnlib/kernels"; do # of a checkout, of an installed wheel
    [ -d "$kernels" ] || continue
    mkdir -p "$here/wheels/kernels"
    cp "$kernels"/*.cu "$kernels"/*.cuh "$here/wheels/kernels"
    break
done
