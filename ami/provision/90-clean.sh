#!/bin/sh
# Leave nothing behind that can be had again or that must differ between machines.
set -eu

apt-get clean
rm -rf /usr/local/share/regiondag/wheels /var/lib/regiondag
[ "$OUTLET" != machine ] || exit 0

rm -rf /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log
[ "$OUTLET" != folder ] || exit 0

# Every machine makes its own identity and its own keys at its first start; tokens come with its user data.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
rm -f /var/lib/dkms/mok.* # with which dkms signed the driver's module; whoever has it can sign others
rm -f /etc/ssh/ssh_host_* /etc/condor/tokens.d/* /etc/condor/passwords.d/*
rm -rf /root/.ssh /root/.cache /root/.bash_history /home/*/.ssh /home/*/.cache /home/*/.bash_history
rm -rf /var/lib/cloud /var/log/condor/* /var/log/journal/* /var/log/cloud-init* /var/tmp/* /etc/regiondag
find /var/log -type f -exec truncate --size 0 {} +
rm -rf /var/lib/apt/lists/*

# What systemd would do at the first start because /usr is new to it, and has nothing to do with the machine.
ldconfig
journalctl --update-catalog
/usr/lib/systemd/systemd-update-done
