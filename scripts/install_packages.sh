#!/usr/bin/env bash
# Install Debian's packages, as root; what they bring is not started. For the tests.
set -euo pipefail

# Where systemd is at work, a package would start a service of its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-unsafe-io "$@"
