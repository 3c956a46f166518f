#!/bin/sh
# A manager: the files below manager/. A machine has one role; a worker's settings would end the collector.
#
# No key is made here, and none may be in an image: HTCondor's collector makes the pool's at its first start.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

if [ -e /etc/condor/config.d/50-regiondag-worker.config ]; then
    echo "70-manager: this machine is a worker (/etc/condor/config.d/50-regiondag-worker.config); use another one" >&2
    exit 1
fi
# Between the people of this machine and the credentials of its role.
apt-get install -y --no-install-recommends nftables
find "$here/manager" -type f -printf '/%P\n' | while read -r file; do
    case $file in
        */sbin/*) mode=755 ;;
        *) mode=644 ;;
    esac
    install -D -m "$mode" "$here/manager$file" "$file"
done
keep_time "$here/chrony.conf"
systemctl enable condor regiondag-metadata
