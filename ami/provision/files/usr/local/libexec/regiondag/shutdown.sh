#!/bin/sh
# Powers the machine off when HTCondor has ended by itself: DEFAULT_MASTER_SHUTDOWN_SCRIPT of an idle worker.
#
# After STARTD_NOCLAIM_SHUTDOWN seconds without a claim the startd ends the master with SIGTERM, and the master, its
# daemons gone, becomes this program: as root, without arguments, in its own process (seen with 23.9.6). That happens
# at every orderly end of the master, so also when systemd stops or restarts condor.service; then the machine stays on.
set -eu

say() {
    logger -t regiondag-shutdown "$*" || true
    { echo "regiondag-shutdown: $*" >/dev/console; } 2>/dev/null || true
}

state=$(systemctl show --property=ActiveState --value condor.service) || state=unknown
if [ "$state" != active ]; then
    say "HTCondor was stopped (condor.service is $state); this machine stays on"
    exit 0
fi
say "HTCondor ended by itself, as it does on an idle worker; this machine powers off"
exec systemctl poweroff
