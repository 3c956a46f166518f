#!/bin/sh
# The initramfs, last: it holds copies of modprobe.d, which the steps before have written to.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

kernel=$(image_kernel)
if [ -z "$kernel" ] || ! command -v update-initramfs >/dev/null; then
    exit 0 # a machine that has booted may do without one
fi
if [ -e "$root/boot/initrd.img-$kernel" ]; then
    update-initramfs -u -k "$kernel"
else # 40-boot.sh had the kernel's package leave it out
    update-initramfs -c -k "$kernel"
fi
