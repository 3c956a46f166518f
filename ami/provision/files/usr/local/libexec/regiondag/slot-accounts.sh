#!/bin/sh
# Make an account for every slot of this machine, and tell HTCondor, so that jobs of two people do not run as the same
# user: whose account a job has can read its files and its memory. Run at boot, as root, before HTCondor.
#
# HTCondor numbers slots from 1 and takes the lowest number that is free. Two for each processor, and some more, as a
# job may ask for no processor; the jobs of slots beyond those run as nobody.
set -eu

cache=/var/cache/regiondag
config=/etc/condor/config.d/51-regiondag-slots.config
new=/etc/condor/.51-regiondag-slots.config.new
install -d -m 755 "$cache"
echo "# Written by slot-accounts.sh at every boot; what is changed here is lost." >"$new"
for number in $(seq $((2 * $(nproc) + 14))); do
    account=regiondag-slot$number
    id "$account" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$account"
    install -d -m 700 -o "$account" -g "$account" "$cache/$account"
    echo "SLOT1_${number}_USER = $account" >>"$new"
done
mv "$new" "$config"
