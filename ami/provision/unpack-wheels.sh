#!/bin/sh
# Unpack the wheels that a requirements file names from ../wheels into Debian's place for them.
#
# usage: unpack-wheels.sh REQUIREMENTS
#
# Whoever starts the recipe fetches the wheels, so that no image needs pip or a route to a package index.
set -eu

wheels=$(readlink -f "$(dirname "$(readlink -f "$0")")/..")/wheels
packages=$(python3 -c 'import sys; print("/usr/local/lib/python%d.%d/dist-packages" % sys.version_info[:2])')
mkdir -p "$packages"
sed -n 's/^\([A-Za-z0-9][A-Za-z0-9._-]*\).*==\([^ ;]*\).*/\1 \2/p' "$1" | while read -r name version; do
    # In a wheel's file name every run of - _ . is one _, and letters are as their author wrote them.
    pattern=$(printf '%s' "$name" | tr -s '_.-' '_' | sed 's/_/[-_.]/g')
    wheel=$(find "$wheels" -maxdepth 1 -iname "$pattern-$version-*.whl" 2>/dev/null | head -n 1)
    if [ -z "$wheel" ]; then
        echo "unpack-wheels: no wheel of $name $version in $wheels; fetch it with:" \
            "pip download --no-deps --only-binary=:all: -r $(basename "$1") -d wheels" >&2
        exit 1
    fi
    # A wheel is a zip file of what belongs into dist-packages.
    python3 -m zipfile -e "$wheel" "$packages"
    echo "WHEEL_$(echo "$name" | tr '.-' '__')=$version" >>"$RECORDED"
done
