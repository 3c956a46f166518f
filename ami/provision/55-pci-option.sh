#!/bin/sh
# NVreg_CheckPCIConfigSpace=0 in every image, and a word on whether this image's driver still reads it (pci-option.sh).
#
# environment: PCI_OPTION is yes or no
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

file=$root/etc/modprobe.d/regiondag-nvidia.conf
kernel=$(image_kernel)

found=$(sh "$here/pci-option.sh" "${PCI_OPTION:-yes}" "$kernel")

if [ "${PCI_OPTION:-yes}" = yes ]; then
    # Options belong to a module's file name, and Debian's differ from everybody else's. Drivers without the option load
    # all the same.
    mkdir -p "$root/etc/modprobe.d"
    {
        echo "# The driver need not check PCI configuration space; what this one makes of it: /etc/regiondag-image, PCI_OPTION."
        for name in $NVIDIA_NAMES; do
            echo "options $name NVreg_CheckPCIConfigSpace=0"
        done
    } >"$file"
else
    rm -f "$file"
fi

record "PCI_OPTION=\"$found\""
echo "55-pci-option: $found"
