#!/usr/bin/env bash
# On Debian, as root: what the tests of containers need. A Docker engine, both versions of Compose,
# and what makes a base image without a registry.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo "prepare.sh: only root can install packages" >&2; exit 2; }
export DEBIAN_FRONTEND=noninteractive
packages=(debootstrap docker-compose docker.io iproute2 iptables)

if ! dpkg --status "${packages[@]}" > /dev/null 2>&1; then
    apt-get update -q
    # The tests start an engine of their own; none is to be started here.
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    apt-get install -q --yes --no-install-recommends "${packages[@]}"
fi

# Compose v2 is in the next release of Debian only; its program runs here too.
plugins=/usr/local/lib/docker/cli-plugins
if [ ! -x "$plugins/docker-compose" ]; then
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
        [ -f "$file" ] || continue
        # Without the paragraphs of security updates, which have other names.
        awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' "$file" \
            | sed -e 's/bookworm-updates//' -e 's/bookworm/trixie/g' > "$work/sources/$(basename "$file")"
    done
    apt=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/sources"
        -o "Dir::State::lists=$work/lists")
    apt-get "${apt[@]}" update -q
    (cd "$work" && apt-get "${apt[@]}" download -q docker-compose)
    dpkg --extract "$work"/docker-compose_*.deb "$work/files"
    install -D "$work/files/usr/libexec/docker/cli-plugins/docker-compose" "$plugins/docker-compose"
    rm -r "$work"
fi
