#!/bin/sh
# What a disk made from nothing needs to boot: kernel, init, network, cloud-init and a boot loader.
# A machine that has booted already brings its own, and keeps it.
set -eu
[ "$OUTLET" = disk ] || exit 0

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

if [ "$(dpkg --print-architecture)" != amd64 ]; then
    echo "40-boot: seen $(dpkg --print-architecture), the disk image is made for amd64 only" >&2
    exit 1
fi

# The initramfs holds what the disks of clouds and of virtual machines need (the kernel knows no others), so that one
# image boots everywhere, and nothing else, so that it boots soon. 65-initramfs.sh makes it, once.
mkdir -p /etc/initramfs-tools/conf.d
printf 'MODULES=list\nCOMPRESS=zstd\n' >/etc/initramfs-tools/conf.d/regiondag
printf '%s\n' nvme virtio_pci virtio_blk virtio_scsi xen_blkfront hv_storvsc vmw_pvscsi ahci sd_mod ext4 \
    >/etc/initramfs-tools/modules

# dhcpcd-base is what cloud-init asks for an address with before the network is up; zstd packs the initramfs.
# openssh-server is what condor_ssh_to_job starts.
INITRD=No apt-get install -y --no-install-recommends \
    systemd-sysv systemd-resolved libnss-myhostname udev dbus kmod iproute2 zstd linux-image-cloud-amd64 initramfs-tools \
    cloud-init cloud-guest-utils dhcpcd-base e2fsprogs openssh-server

kernel=$(image_kernel)
# The worker is never upgraded in place; its kernel, its driver and its initramfs stay as they were baked together.
apt-mark hold linux-image-cloud-amd64 "linux-image-$kernel" >/dev/null
record "KERNEL=$kernel"

# Not checked at boot: a worker's disk lives as long as the worker, and ext4 has its journal.
echo "LABEL=regiondag-root / ext4 defaults,x-systemd.growfs 0 0" >/etc/fstab

cat >/etc/systemd/network/50-regiondag.network <<'NETWORK'
[Match]
Type=ether

[Network]
DHCP=yes
NETWORK
systemctl enable systemd-networkd systemd-resolved ssh
# What Debian mounts and loads for desktops and for debugging.
systemctl mask --quiet modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service \
    modprobe@fuse.service sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount dev-hugepages.mount systemd-binfmt.service

# The boot loader's images are made here, by the GRUB of the same release; who writes the disk puts them in place.
# no_timer_check: a kernel that an overloaded host emulates sees too few ticks and panics; where KVM runs it, as on
# Nitro, it does not look by itself.
mkdir -p /boot/grub /boot/regiondag
cat >/boot/grub/grub.cfg <<GRUB
set timeout=0
search --no-floppy --label regiondag-root --set=root
linux /boot/vmlinuz-$kernel root=LABEL=regiondag-root ro console=tty0 console=ttyS0,115200n8 loglevel=5 systemd.show_status=1 fsck.mode=skip no_timer_check nvme_core.io_timeout=4294967295
initrd /boot/initrd.img-$kernel
boot
GRUB
if [ ! -e /boot/regiondag/BOOTX64.EFI ]; then
    apt-get install -y --no-install-recommends grub-pc-bin grub-efi-amd64-bin
    cat >/boot/regiondag/embedded.cfg <<'GRUB'
search --no-floppy --label regiondag-root --set=root
configfile ($root)/boot/grub/grub.cfg
GRUB
    modules="part_gpt ext2 search search_label configfile normal linux"
    # shellcheck disable=SC2086 # several words
    grub-mkimage -O i386-pc -c /boot/regiondag/embedded.cfg -p /boot/grub -o /boot/regiondag/core.img biosdisk $modules
    # shellcheck disable=SC2086
    grub-mkimage -O x86_64-efi -c /boot/regiondag/embedded.cfg -p /boot/grub -o /boot/regiondag/BOOTX64.EFI fat $modules
    cp /usr/lib/grub/i386-pc/boot.img /boot/regiondag/boot.img
    apt-get purge -y --autoremove grub-pc-bin grub-efi-amd64-bin
fi
