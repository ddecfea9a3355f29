#!/usr/bin/env bash
# What tests/monitoring needs besides Python, from Debian's packages, as root. Nothing is started.
set -euo pipefail

"$(dirname "$0")/install_packages.sh" prometheus chromium fonts-dejavu-core
