#!/bin/sh
# The service setup of Compose, before all others: what would be a mistake is said at once, and the
# processes of the job get the token that they share.
set -eu

cannot() {
    echo "$1: user $(id -u) can't write into this directory; chown -R $(id -u) it, or use a named volume" >&2
    exit 2
}

[ -w runs ] || cannot "RUNS=$RUNS"
# Data that are there already may well be read only.
[ -w data ] || [ -n "$(ls -A data)" ] || cannot "DATA=$DATA"

cd /run/secrets
if [ ! -s fleetps_token ]; then
    umask 027
    head -c 24 /dev/urandom | base64 > fleetps_token
fi
