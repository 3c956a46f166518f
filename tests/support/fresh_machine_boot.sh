#!/bin/sh
# The first process of a machine of fresh_machine.py, in namespaces of its own: gives it a root, and ends with its input.
#
# usage: fresh_machine_boot.sh ROOT machine|container
set -eu

root=$1 kind=$2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
if [ "$kind" = container ]; then
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
fi
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts run/lock
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for folder in opt/*; do # packages that lie on this machine's disk
    [ ! -d "$folder" ] || mount --bind -o ro "/$folder" "$folder"
done
hostname fresh
printf '127.0.0.1 localhost\n127.0.1.1 fresh\n' >etc/hosts
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
# Children that lost their parent are nobody's to wait for.
trap '' CHLD
echo ready
exec cat >/dev/null
