#!/bin/sh
# Numba compiles nnlib's inner loops where there is no GPU, and what surrounds the kernels where there is one.
# Debian has none for its Python; the wheels (requirements-worker.txt) lie in ../wheels like the others.
set -eu

here=$(dirname "$(readlink -f "$0")")
sh "$here/unpack-wheels.sh" "$here/requirements-worker.txt"
