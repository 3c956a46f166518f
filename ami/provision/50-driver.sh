#!/bin/sh
# NVIDIA's driver as a module of the image's own kernel, and a CuPy that fits it.
#
# environment: DRIVER is none, closed or open; LEAST_DRIVER a branch such as 570 (0: any); FABRIC_MANAGER maybe or needed
#   closed   every GPU up to Ada and Hopper; the only one for Volta (P3) and older
#   open     Turing (G4) and newer; the only one for Blackwell (P6, G7), from branch 570 on, which Debian does not have
# A module that did not build, or one that does not fit its libraries, ends the bake: on a worker it would be a GPU
# that nobody sees.
set -eu

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=ami/provision/common.sh
. "$here/common.sh"

say() { echo "50-driver: $*"; }
fail() {
    echo "50-driver: ERROR: $*" >&2
    exit 1
}

# The version that apt would install, or nothing.
candidate() { apt-cache policy "$1" | sed -n 's/^  Candidate: //p' | grep -vxF '(none)' || true; }

# The first package of those named that apt can install, or nothing.
first_candidate() {
    for package in "$@"; do
        if [ -n "$(candidate "$package")" ]; then
            echo "$package"
            return
        fi
    done
}

# Whether the module $1 of the image's kernel is open or closed: the open one has a licence that the kernel accepts.
kind_of() {
    case "$(modinfo -k "$kernel" -F license "$1")" in
        *GPL*) echo open ;;
        *) echo closed ;;
    esac
}

# 550.163.01 of the package version 550.163.01-2.
upstream() { echo "$1" | sed 's/^[0-9]*://; s/-[^-]*$//'; }

require_package() { # PACKAGE COMPONENT
    [ -z "$(candidate "$1")" ] || return 0
    seen=$(apt-cache policy | sed -n 's/.*[ ,]c=\([^,]*\).*/\1/p' | sort -u | paste -sd ' ')
    fail "no package $1 in the apt sources of this root (their components: ${seen:-none}); it belongs to Debian's" \
        "component $2: add \`contrib non-free non-free-firmware\` after \`main\` in /etc/apt/sources.list or" \
        "/etc/apt/sources.list.d, run apt-get update, and start again; or bake with --driver none"
}

install_driver() {
    require_package nvidia-persistenced contrib
    if [ "$DRIVER" = closed ]; then
        require_package nvidia-kernel-dkms non-free
        module_package=nvidia-kernel-dkms
    else # NVIDIA's own package where its repository is among the sources: it is newer than Debian's
        module_package=$(first_candidate nvidia-kernel-open-dkms nvidia-open-kernel-dkms)
        [ -n "$module_package" ] || require_package nvidia-open-kernel-dkms contrib
    fi
    require_package libcuda1 non-free
    if [ "$(first_candidate firmware-nvidia-gsp nvidia-kernel-open-dkms)" = "" ]; then
        require_package firmware-nvidia-gsp non-free-firmware
    fi
    offered=$(upstream "$(candidate "$module_package")")
    [ "${offered%%.*}" -ge "$least" ] ||
        fail "the GPUs that this image is for need driver $least or newer, and the apt sources have $offered" \
            "($module_package; Debian has nothing newer): add NVIDIA's own apt repository to the sources," \
            "with \`regiondag bake image --apt-source FILE\` or in /etc/apt/sources.list.d, and start again"
    headers=linux-headers-$kernel
    [ -n "$(candidate "$headers")" ] || dpkg-query --show "$headers" >/dev/null 2>&1 ||
        fail "no package $headers in the apt sources: they hold another kernel than this root ($kernel);" \
            "upgrade its linux-image package first, restart a machine that runs, and start again"
    # NVIDIA's repository has the programs and libraries for computing in one package, Debian in two.
    if [ -n "$(candidate nvidia-driver-cuda)" ]; then
        programs=nvidia-driver-cuda
    else
        programs="libcuda1 nvidia-smi"
    fi

    say "the $DRIVER driver, $module_package $(candidate "$module_package"), for kernel $kernel; building takes minutes"
    # A machine that stays itself gets new kernels; with their headers dkms builds the module for each.
    if [ "${OUTLET:-}" = machine ]; then
        programs="$programs $(first_candidate "linux-headers-${kernel#*-}")"
    fi
    # apt fails when the module does not build; what follows says why better than it does.
    # shellcheck disable=SC2086 # several packages
    apt-get install -y --no-install-recommends "$headers" $programs nvidia-persistenced "$module_package" ||
        say "apt-get failed ($?)"
    if mend_source; then
        dpkg --configure -a || say "dpkg failed ($?)"
    fi
    if command -v dkms >/dev/null && ! nvidia_module "$kernel" >/dev/null && [ -z "$(build_log)" ]; then
        # The package built for another kernel alone, that which runs.
        dkms autoinstall -k "$kernel" || say "dkms failed ($?)"
    fi
}

# Debian 13's open module is of April 2025; kernels 6.12.y of 2026 have given pci_resize_resource a fourth argument, which
# NVIDIA's later releases pass as 0. Its source is mended where a build has failed by just that.
mend_source() {
    log=$(build_log)
    [ -n "$log" ] && grep -q "too few arguments to function .pci_resize_resource" "$log" || return 1
    sources=$(grep -lF 'pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size)' \
        "$root"/usr/src/nvidia-*/nvidia/nv-pci.c 2>/dev/null) || return 1
    echo "$sources" | xargs sed -i 's/\(pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size\))/\1, 0)/'
    rm -f "$log"
    say "its source does not know this kernel's pci_resize_resource; mended, and built again"
}

# dkms's log of a build for our kernel that failed; of one that did not, it is moved elsewhere.
build_log() {
    find "$root/var/lib/dkms" -path '*/build/make.log' -exec grep -lF "for kernel $kernel " {} + 2>/dev/null |
        head -n 1
}

# Print why the module did not build, and what can be done about it.
explain_failure() {
    log=$(build_log)
    {
        if [ -z "$log" ]; then
            echo "50-driver: dkms left no make.log; apt's messages above say why"
        elif grep -q 'error:' "$log"; then
            echo "50-driver: $log says:"
            grep -m 5 'error:' "$log" | sed 's/^/    /'
        else
            echo "50-driver: the end of $log:"
            tail -n 15 "$log" | sed 's/^/    /'
        fi
        echo "50-driver: what can be done:"
        if [ "$DRIVER" = open ]; then
            cat <<'CHOICES'
    - bake with --driver closed: runs every GPU before Blackwell
    - add NVIDIA's own repository to the apt sources of the root: its nvidia-kernel-open-dkms is then taken
CHOICES
        else
            cat <<'CHOICES'
    - look whether a newer nvidia-kernel-dkms is in this suite's updates or backports, and add those to the sources
    - add NVIDIA's own repository to the apt sources of the root: its newer packages are then taken
CHOICES
        fi
        echo "    - bake with --driver none: a worker without GPU"
    } >&2
    fail "no NVIDIA module for the image's kernel $kernel ($DRIVER driver); the reason is above"
}

# Neither import nor compiling needs a GPU; the first boot's self-test does the rest.
check_cupy() {
    # shellcheck disable=SC2086 # several numbers
    CUPY_CACHE_IN_MEMORY=1 "$root/usr/local/libexec/regiondag/python" - $architectures <<'PYTHON' ||
import sys

import cupy
import cupy.cublas
from cupy.cuda import nvrtc

source = 'extern "C" __global__ void scale(float* x, float c) { x[threadIdx.x] *= c; }'
for architecture in map(int, sys.argv[1:]):
    program = nvrtc.createProgram(source, "scale.cu", (), ())
    nvrtc.compileProgram(program, (f"--gpu-architecture=sm_{architecture}",))
    assert nvrtc.getCUBIN(program), architecture
print("50-driver: CuPy", cupy.__version__, "compiles with NVRTC", "%d.%d" % nvrtc.getVersion())
PYTHON
        fail "CuPy does not work in this image; the traceback is above, the wheels are those of $wheels"
}

# NVIDIA's fabric manager, without which CUDA fails where NVSwitches connect the GPUs. It must be of the driver's very
# version. Its unit starts only where there are NVSwitches (nvidia-fabricmanager.service.d). Debian does not package it.
install_fabric_manager() {
    for package in nvidia-fabricmanager "nvidia-fabricmanager-${version%%.*}"; do
        offered=$(apt-cache madison "$package" 2>/dev/null | awk -F ' *[|] *' '{ printf "%s ", $2 }')
        for one in $offered; do
            [ "$(upstream "$one")" = "$version" ] || continue
            # Blackwell's NVSwitches are managed over InfiniBand devices, by a program of its own.
            subnet=$(first_candidate nvlsm)
            # shellcheck disable=SC2086 # one package or none
            apt-get install -y --no-install-recommends "$package=$one" $subnet ||
                fail "apt-get could not install $package $one; its messages are above"
            systemctl enable nvidia-fabricmanager.service
            record "FABRIC_MANAGER=$version"
            say "$package $one, for machines with NVSwitches"
            return
        done
        seen="${seen:-}${offered:+ $package $offered}"
    done
    [ "$FABRIC_MANAGER" != needed ] ||
        fail "the machines that this image is for have NVSwitches, and the apt sources have no nvidia-fabricmanager of" \
            "the driver's version $version (seen:${seen:- none}); Debian has none: add NVIDIA's own apt repository," \
            "with \`regiondag bake image --apt-source FILE\` or in /etc/apt/sources.list.d, and start again"
    record FABRIC_MANAGER=none
    say "no fabric manager of version $version to be had; this image is not for P4, P5.48xlarge and P6"
}

# nnlib's kernels, with which the self-test keeps GPUs busy: whoever starts the recipe lays them among the wheels.
install_kernels() {
    sources=$here/../wheels/kernels
    kernels=$root/usr/local/libexec/regiondag/kernels
    rm -rf "$kernels"
    if [ ! -d "$sources" ]; then
        say "nnlib's kernels are not in $sources: the self-test at boot will do without them, and say so"
        return
    fi
    mkdir -p "$kernels"
    install -m 644 "$sources"/*.cu "$sources"/*.cuh "$kernels"
}

hold() {
    dpkg-query --show --showformat '${Package}\t${db:Status-Status}\n' 'linux-image-*' 'linux-headers-*' 'nvidia-*' \
        'libcuda1' 'libnvidia-*' 'firmware-nvidia-*' 'nvlsm' 2>/dev/null | awk '$2 == "installed" { print $1 }' |
        xargs apt-mark hold >/dev/null
}

kernel=$(image_kernel)
least=${LEAST_DRIVER:-0} FABRIC_MANAGER=${FABRIC_MANAGER:-maybe}
wheels=requirements-gpu.txt architectures="70 75 80 86 89 90"
if [ "$least" -ge 570 ]; then # Blackwell; NVRTC 12.9 is the first that knows B300, and the last of CUDA 12
    wheels=requirements-gpu-blackwell.txt architectures="75 80 86 89 90 100 103 120"
fi

case "${DRIVER:-none}" in
    none)
        record DRIVER=none
        [ -z "$kernel" ] || record "KERNEL=$kernel"
        say "no NVIDIA driver, as asked; a worker of this image has no GPU"
        exit 0
        ;;
    closed | open) ;;
    *) fail "DRIVER is '$DRIVER'; it can be none, closed or open" ;;
esac

[ -n "$kernel" ] || fail "no kernel in /lib/modules, and a driver belongs to one; only the outlets disk and" \
    "instance have a kernel"

if ! module=$(nvidia_module "$kernel"); then
    install_driver
    module=$(nvidia_module "$kernel") || explain_failure
fi
found=$(kind_of "$module")
[ "$found" = "$DRIVER" ] ||
    fail "this root has the $found driver ($module) for kernel $kernel, and $DRIVER is asked for; start from a new root"

version=$(modinfo -k "$kernel" -F version "$module")
[ "${version%%.*}" -ge "$least" ] || fail "this root has driver $version, and $least or newer is asked for"
library=$(upstream "$(dpkg-query --show --showformat '${Version}' libcuda1)")
[ "$version" = "$library" ] ||
    fail "the module is of driver $version and libcuda1 of $library; CUDA refuses that. One of the apt sources is newer" \
        "than the other: leave only one of them with NVIDIA's packages"

# regiondag-gpu.service loads the module, after it has chosen its options; Debian's list would come before it.
if [ "${OUTLET:-}" != machine ] && [ -e "$root/etc/modules-load.d/nvidia.conf" ]; then
    ln -sfn /dev/null "$root/etc/modules-load.d/nvidia.conf"
fi
if [ -e "$root/usr/lib/systemd/system/nvidia-persistenced.service" ]; then
    systemctl enable nvidia-persistenced.service
fi
sh "$here/unpack-wheels.sh" "$here/$wheels"
check_cupy
install_kernels
install_fabric_manager
# An upgrade of one without the other would leave a machine without its GPU. One that stays itself must go on getting
# its kernel's security updates.
[ "${OUTLET:-}" = machine ] || hold

record "DRIVER=$DRIVER"
record "DRIVER_VERSION=$version"
record "KERNEL=$kernel"
say "$module $version for kernel $kernel"
