#!/bin/sh
# HTCondor as Debian packages it: 23.9 in Debian 13, 25.14 in the next one.
# Workers and manager must be of one series: a 25.14 worker never matches under a 23.9 manager.
set -eu

# The package's script asks condor_config_val, which failed now and then on busy machines; the script hides why.
apt-get install -y --no-install-recommends condor || {
    condor_config_val LOG || true
    sleep 10
    dpkg --configure --pending
}

# The local file is where an outlet puts its own settings; it is read after config.d.
touch /etc/condor/condor_config.local
