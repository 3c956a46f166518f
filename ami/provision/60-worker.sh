#!/bin/sh
# A worker: the files below files/, their units, and doors closed that nobody needs.
set -eu

here=$(dirname "$(readlink -f "$0")")

# nftables keeps jobs away from the credentials of the machine's role.
apt-get install -y --no-install-recommends ca-certificates nftables pciutils

cp --recursive --no-preserve=ownership,mode "$here/files/." /
find "$here/files" -type f -printf '/%P\n' | while read -r file; do
    case $file in
        /usr/local/libexec/*) chmod 755 "$file" ;;
        *) chmod 644 "$file" ;;
    esac
done

for unit in "$here"/files/etc/systemd/system/*.service; do
    [ -e "$unit" ] || continue
    systemctl enable "$(basename "$unit")"
done
systemctl enable condor nftables
# Nothing here is brought up to date behind a running training's back; a new image is baked instead.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service; do
    systemctl disable "$unit" 2>/dev/null || true
done

# Nobody logs in with a password: root's is locked, and cloud-init puts keys where EC2 was given one.
passwd --lock root
