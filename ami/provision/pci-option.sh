#!/bin/sh
# Say what NVreg_CheckPCIConfigSpace=0 is good for in an image. Changes nothing.
#
# usage: pci-option.sh yes|no [KERNEL]     yes: the option is written; KERNEL: the image's, if it has one
# prints one line "CASE: sentence"; CASE is one of
#   skipped     nobody asked for the option
#   no driver   the image has no NVIDIA module for that kernel
#   known       the driver has the option (340 to 418)
#   ignored     the driver has it no more (450 and newer); the kernel says so at every load of the module
# exits: 0, or 2 when the case cannot be found out
#
# In 2014 the option made a benchmark on EC2 up to 86 times faster: the driver read PCI configuration space again and
# again, and the hypervisor trapped each read. Since 340.65 (December 2014) it does not do so in virtual machines.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

wanted=${1:-} kernel=${2:-}
case "$wanted" in
    yes) ;;
    no)
        echo "skipped: NVreg_CheckPCIConfigSpace=0 was left out (--skip-pci-option)"
        exit 0
        ;;
    *)
        echo "pci-option: ERROR: the first argument is '$wanted'; it can be yes or no" >&2
        exit 2
        ;;
esac

no_driver="no driver: NVreg_CheckPCIConfigSpace=0 is set, but no NVIDIA driver is in this image to read it"
if [ -z "$kernel" ]; then
    echo "$no_driver"
    exit 0
fi
if ! command -v modinfo >/dev/null; then
    echo "pci-option: ERROR: no modinfo here to ask the driver with: apt-get install kmod" >&2
    exit 2
fi
if ! module=$(nvidia_module "$kernel"); then
    echo "$no_driver"
    exit 0
fi
if ! options=$(modinfo -k "$kernel" -p "$module"); then
    echo "pci-option: ERROR: modinfo -k $kernel -p $module failed, so what the driver knows cannot be told" >&2
    exit 2
fi
version=$(modinfo -k "$kernel" -F version "$module" || true)
if echo "$options" | grep -q '^NVreg_CheckPCIConfigSpace:'; then
    echo "known: driver ${version:-of unknown version} honours NVreg_CheckPCIConfigSpace=0"
else
    echo "ignored: driver ${version:-of unknown version} has no NVreg_CheckPCIConfigSpace any more (450 and newer);" \
        "in virtual machines the check is off anyway since 340.65"
fi
