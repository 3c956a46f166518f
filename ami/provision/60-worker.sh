#!/bin/sh
# A worker: the files below files/, their units, and doors closed that nobody needs.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

# Of a machine that is to stay itself the firewall, SSH, the kernel's settings, the logs and its graphics are its owner's
# business.
theirs='^/etc/(nftables|ssh|cloud|sysctl|systemd/(journald|resolved|system\.conf)|modprobe\.d/regiondag-(boot|hardening))'
if [ "$OUTLET" != machine ]; then
    theirs='^$'
    # nftables keeps jobs away from the credentials of the machine's role.
    apt-get install -y --no-install-recommends nftables
fi
apt-get install -y --no-install-recommends ca-certificates pciutils
keep_time "$here/chrony.conf"

find "$here/files" -type f -not -name '*.pyc' -printf '/%P\n' | grep -Ev "$theirs" | while read -r file; do
    case $file in
        /usr/local/libexec/*) mode=755 ;;
        *) mode=644 ;;
    esac
    install -D -m "$mode" "$here/files$file" "$file"
done

for unit in "$here"/files/etc/systemd/system/*.service "$here"/files/etc/systemd/system/*.timer; do
    # One without this is started by a timer.
    grep -q '^\[Install\]' "$unit" || continue
    systemctl enable "$(basename "$unit")"
done
systemctl enable condor
[ "$OUTLET" != machine ] || exit 0

systemctl enable nftables
# Nothing here is brought up to date behind a running training's back; a new image is baked instead.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service; do
    systemctl disable "$unit" 2>/dev/null || true
done

# Nobody logs in with a password: root's is locked, and cloud-init puts keys where EC2 was given one.
passwd --lock root
# What people create at a shell others need not read.
sed -i '/^UMASK/d' "$root/etc/login.defs"
printf 'UMASK\t027\n' >>"$root/etc/login.defs"
