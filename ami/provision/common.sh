# shellcheck shell=sh
# What steps must agree on: the image's kernel, what NVIDIA's module is called, what is remembered. Sourced.

# Before every path of the image; tests set it.
root=${REGIONDAG_ROOT:-}

# Debian's closed and open packages, and everybody else's.
NVIDIA_NAMES="nvidia-current nvidia-current-open nvidia"

# The newest kernel of the image; in a chroot `uname -r` names another machine's.
image_kernel() {
    for modules in "$root"/lib/modules/*/modules.builtin; do
        [ ! -e "$modules" ] || basename "$(dirname "$modules")"
    done | sort -V | tail -n 1
}

# The file name of NVIDIA's module for kernel $1, without .ko; fails if there is none.
nvidia_module() {
    for name in $NVIDIA_NAMES; do
        if modinfo -k "$1" -F filename "$name" >/dev/null 2>&1; then
            echo "$name"
            return 0
        fi
    done
    return 1
}

# Have 80-validate.sh write KEY=VALUE into /etc/regiondag-image, in place of an earlier run's.
record() {
    recorded=$root/var/lib/regiondag/recorded
    mkdir -p "$root/var/lib/regiondag"
    touch "$recorded"
    sed -i "/^${1%%=*}=/d" "$recorded"
    echo "$1" >>"$recorded"
}

# Have chrony keep the clock, by the settings in file $1. A machine that stays itself keeps what it has for that.
keep_time() {
    if [ "$OUTLET" = machine ] && has_clock; then
        echo "clock: left to what this machine has for it"
        return
    fi
    apt-get install -y --no-install-recommends chrony
    install -D -m 644 "$1" "$root/etc/chrony/chrony.conf"
    systemctl enable chrony
}

# Whether a program that keeps the clock is installed.
has_clock() {
    # shellcheck disable=SC2016 # dpkg's variable
    dpkg-query --show --showformat '${db:Status-Status}\n' chrony systemd-timesyncd ntpsec openntpd 2>/dev/null |
        grep -qx installed
}
