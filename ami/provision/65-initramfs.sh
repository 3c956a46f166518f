#!/bin/sh
# The initramfs, last: it holds copies of the modules' options that the steps before have written.
set -eu

command -v update-initramfs >/dev/null || exit 0 # a machine that has booted may do without one
kernel=$(find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' | sort --version-sort | tail -n 1)
if [ -e "/boot/initrd.img-$kernel" ]; then
    update-initramfs -u -k "$kernel"
else
    update-initramfs -c -k "$kernel"
fi
