#!/bin/sh
# Runs every job of this machine, as the account of its slot: USER_JOB_WRAPPER. These accounts have no home, and without
# a folder CuPy's and Numba's compiled code would be lost with every job; it is one that no other account enters, for
# what somebody could write into a common one, others would run.
set -eu

XDG_CACHE_HOME=/var/cache/regiondag/$(id -un)
CUPY_CACHE_DIR=$XDG_CACHE_HOME/cupy
export XDG_CACHE_HOME CUPY_CACHE_DIR
exec "$@"
