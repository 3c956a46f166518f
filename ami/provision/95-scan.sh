#!/bin/sh
# The last look: an image that holds a secret, or what should differ between machines, is not finished.
set -eu
case $OUTLET in folder | machine) exit 0 ;; esac
exec python3 "$(dirname "$(readlink -f "$0")")/scan.py" /
