#!/bin/sh
# Turn a plain Debian root into a regiondag machine: HTCondor and a Python that trains and proposes.
#
# usage: provision.sh            as root inside that root (a chroot, a container or the booted machine)
# exits: 0 done, else the code of the step that failed; its name is the last "provision:" line
#
# Needs no cloud and starts no service. Every step can run again; a second run changes nothing.
# The embedded pool's root folder, the disk image and the AMI are all made by this script.
set -eu

here=$(dirname "$(readlink -f "$0")")
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

for step in "$here"/[0-9][0-9]-*.sh; do
    echo "provision: $(basename "$step" .sh)"
    sh "$step"
done
