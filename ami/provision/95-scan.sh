#!/bin/sh
# The last look: an image that holds a secret, or what should differ between machines, is not finished.
set -eu
case $OUTLET in folder | machine) exit 0 ;; esac
python3 "$(dirname "$(readlink -f "$0")")/scan.py" /
# What AWS's builders start from has more programs than the recipe puts there; of the disk all are known.
[ "$OUTLET" != disk ] || exec python3 -B /usr/local/libexec/regiondag/hardening.py --files
