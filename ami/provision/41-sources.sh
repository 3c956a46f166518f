#!/bin/sh
# A Debian AMI knows only the component main, and a kernel whose headers the archive may no longer have: NVIDIA's driver
# needs the other components, and the headers of the kernel that the image will boot.
# A disk made from nothing has both already, and of a machine that stays itself they are its owner's business.
#
# environment: OUTLET, DRIVER
set -eu
[ "$OUTLET" = instance ] && [ "$DRIVER" != none ] || exit 0

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

wanted="main contrib non-free non-free-firmware"
apt=$root/etc/apt
if [ -e "$apt/sources.list.d/debian.sources" ]; then
    sed -i "s/^Components: main\b.*/Components: $wanted/" "$apt/sources.list.d/debian.sources"
fi
if [ -e "$apt/sources.list" ]; then
    sed -i "s/^\(deb .*\) main\b.*/\1 $wanted/" "$apt/sources.list"
fi
apt-get update
# Nothing is restarted: the driver is built for the image's newest kernel, whichever runs.
apt-get install -y --no-install-recommends --only-upgrade linux-image-cloud-amd64 linux-image-amd64
