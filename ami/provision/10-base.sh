#!/bin/sh
# The few packages every machine needs, and the account that owns the embedded pool.
set -eu

here=$(dirname "$(readlink -f "$0")")

# Manuals and translations are a third of a small image and nobody reads them on a worker.
[ "${OUTLET:-folder}" = machine ] || install -D -m 644 "$here/slim.dpkg.cfg" /etc/dpkg/dpkg.cfg.d/regiondag-slim

if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    apt-get update
fi

# mount and login are no longer pulled in by anything from Debian 14 on; without them it does not boot.
apt-get install -y --no-install-recommends ca-certificates login mount passwd procps util-linux

# HTCondor's programs look up the name of their machine.
[ -s /etc/hosts ] || echo "127.0.0.1 localhost" >/etc/hosts

# A fixed number, for the host must know it before it enters; 8010 is free in Debian's ranges.
if ! getent passwd regiondag >/dev/null; then
    groupadd --gid 8010 regiondag
    useradd --uid 8010 --gid 8010 --no-create-home --home-dir /nonexistent --shell /bin/bash regiondag
fi
