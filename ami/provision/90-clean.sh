#!/bin/sh
# Leave nothing behind that can be had again or that must differ between machines.
set -eu

apt-get clean
rm -rf /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log
rm -rf /usr/local/share/regiondag/wheels
