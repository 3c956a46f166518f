#!/bin/sh
# Turn a plain Debian root into a regiondag machine: HTCondor and a Python that trains and proposes.
#
# usage: provision.sh [--outlet folder|disk|instance|machine] [--role worker|manager] [--driver none|closed|open]
#                     [--least-driver N] [--fabric-manager] [--skip-pci-option]
#   as root inside that root (a chroot, a container or the booted machine)
#   --outlet   folder: programs only, nothing that boots (default; the embedded pool)
#              disk: all that a machine needs to boot, for an image made from nothing
#              instance: a Debian that has booted already and becomes an image (Packer, EC2 Image Builder);
#                        it loses its keys, its logs and its identity
#              machine: a Debian that has booted already and takes the role itself; it keeps all it has
#   --role     worker: offers itself to a pool (default)
#              manager: the pool's collector, negotiator and access point; with --outlet machine, without a driver
#   --driver   NVIDIA's kernel module: none (default), closed or open
#   --least-driver      an older branch of the driver will not do: 570 for Blackwell
#   --fabric-manager    it is for machines with NVSwitches: no image without NVIDIA's fabric manager
#   --skip-pci-option   leave out NVreg_CheckPCIConfigSpace=0
# exits: 0 done, 2 wrong arguments, else the code of the step that failed; its name is the last "provision:" line
#
# Needs no cloud and starts no service. Every step can run again; a second run changes nothing.
# The embedded pool's root folder, the disk image and the AMI are all made by this script.
set -eu

here=$(dirname "$(readlink -f "$0")")
OUTLET=folder ROLE=worker DRIVER=none LEAST_DRIVER=0 FABRIC_MANAGER=maybe PCI_OPTION=yes
wrong() {
    echo "provision.sh: $1" >&2
    sed -n '4,18s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
        --outlet | --role | --driver | --least-driver)
            [ $# -ge 2 ] || wrong "$1 needs a value"
            case $1 in
                --outlet) OUTLET=$2 ;; --role) ROLE=$2 ;; --driver) DRIVER=$2 ;; --least-driver) LEAST_DRIVER=$2 ;;
            esac
            shift
            ;;
        --fabric-manager) FABRIC_MANAGER=needed ;;
        --skip-pci-option) PCI_OPTION=no ;;
        *) wrong "seen '$1'" ;;
    esac
    shift
done
case $OUTLET in
    folder | disk | instance | machine) ;;
    *) wrong "--outlet: seen '$OUTLET', legal: folder, disk, instance or machine" ;;
esac
case $DRIVER in none | closed | open) ;; *) wrong "--driver: seen '$DRIVER', legal: none, closed or open" ;; esac
case $LEAST_DRIVER in '' | *[!0-9]*) wrong "--least-driver: seen '$LEAST_DRIVER', legal: a number such as 570" ;; esac
case $ROLE,$OUTLET,$DRIVER in
    worker,*) ;;
    manager,machine,none) ;;
    manager,*) wrong "--role manager: seen --outlet $OUTLET --driver $DRIVER, legal: --outlet machine, and no driver" ;;
    *) wrong "--role: seen '$ROLE', legal: worker or manager" ;;
esac

# shellcheck source=ami/provision/common.sh
. "$here/common.sh"
# Meant for a root that is being made. On a machine that runs they would take its boot loader, its keys and its logs.
case $OUTLET in
    folder | disk)
        [ ! -d "$root/run/systemd/system" ] ||
            wrong "this machine has booted, and --outlet $OUTLET would spoil it; --outlet machine lets it stay itself"
        ;;
esac
record "OUTLET=$OUTLET"

export OUTLET ROLE DRIVER LEAST_DRIVER FABRIC_MANAGER PCI_OPTION DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

for step in "$here"/[0-9][0-9]-*.sh; do
    name=$(basename "$step" .sh)
    case $OUTLET,$ROLE,$name in
        folder,*,[4-7]*) continue ;; # steps 40 to 79 are for machines that boot
        *,worker,7*) continue ;;     # of these, 40 to 69 make a worker, 70 to 79 a manager
        *,manager,[4-6]*) continue ;;
    esac
    echo "provision: $name"
    sh "$step"
done
