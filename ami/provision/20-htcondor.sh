#!/bin/sh
# HTCondor as Debian packages it: 23.9 in Debian 13, 25.14 in the next one.
# Workers and manager must be of one series: a 25.14 worker never matches under a 23.9 manager.
set -eu

apt-get install -y --no-install-recommends condor

# The local file is where an outlet puts its own settings; it is read after config.d.
touch /etc/condor/condor_config.local
