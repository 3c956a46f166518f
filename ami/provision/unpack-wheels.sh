#!/bin/sh
# Unpack the wheels that a requirements file names from ../wheels into Debian's place for them.
#
# usage: unpack-wheels.sh REQUIREMENTS
#
# Whoever starts the recipe fetches the wheels, so that no image needs pip or a route to a package index.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

wheels=$(readlink -f "$here/../wheels")
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
packages=$root/usr/local/lib/python$python/dist-packages
mkdir -p "$packages"
sed -n 's/^\([A-Za-z0-9][A-Za-z0-9._-]*\).*==\([^ ;]*\).*/\1 \2/p' "$1" | while read -r name version; do
    # In a wheel's file name every run of - _ . is one _, and letters are as their author wrote them.
    pattern=$(printf '%s' "$name" | tr -s '_.-' '_' | sed 's/_/[-_.]/g')
    wheel=$(find "$wheels" -maxdepth 1 -iname "$pattern-$version-*.whl" 2>/dev/null | head -n 1)
    if [ -z "$wheel" ]; then
        echo "unpack-wheels: ERROR: no wheel of $name==$version in $wheels; wheels.sh beside the recipe's folder" \
            "fetches what $(basename "$1") names, with pip and as who you are, not as root: ./wheels.sh $python" >&2
        exit 1
    fi
    # A wheel is a zip file of what belongs into dist-packages.
    python3 -m zipfile -e "$wheel" "$packages"
    record "WHEEL_$(echo "$name" | tr '.-' '__')=$version"
done
# What is not compiled here, every job would compile for itself, and could not keep.
python3 -m compileall -q -j 0 "$packages"
