#!/bin/sh
# The first process of a machine of several_machines.py, in namespaces of its own: gives it a root, then waits to be killed.
#
# usage: several_machines_boot.sh NAME IMAGE [CODE]
#   IMAGE   a root folder, which stays as it is: what the machine writes is in memory
#   CODE    a folder that the machine sees as /opt/regiondag
set -eu

name=$1 image=$2 code=${3:-}
place=$image/mnt
mount -t tmpfs -o mode=755 tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=$image,upperdir=$place/upper,workdir=$place/work" machine "$place/root"
cd "$place/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys # or HTCondor would tune this machine's kernel
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts run/lock run/condor
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
hostname "$name"
echo "$name" >etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" >etc/hosts
if [ -n "$code" ]; then
    mkdir -p opt/regiondag
    mount --bind "$code" opt/regiondag
    mount -o remount,bind,ro opt/regiondag
fi
mkdir old
pivot_root . old
umount -l /old
rmdir /old
chown condor:condor /run/condor /var/lib/condor 2>/dev/null || true
# Children that lost their parent are nobody's to wait for, and the kernel takes them away when nobody cares for SIGCHLD.
trap '' CHLD
: >/run/booted
exec sleep infinity
