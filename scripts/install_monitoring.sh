#!/usr/bin/env bash
# What tests/monitoring needs besides Python, from Debian's packages, as root. Nothing is started.
set -euo pipefail

# On a machine with systemd the package would start a Prometheus of its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
  -o DPkg::Lock::Timeout=300 prometheus chromium fonts-dejavu-core
