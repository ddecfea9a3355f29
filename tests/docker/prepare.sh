#!/usr/bin/env bash
# On Debian 12, as root: what the tests of containers need. A Docker engine if none answers, both
# versions of Compose, and what makes a base image without a registry. Nothing is started.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo "prepare.sh: only root can install packages" >&2; exit 2; }
command -v apt-get > /dev/null || { echo "prepare.sh: there is no apt-get here" >&2; exit 2; }
packages=(iproute2 iptables mmdebstrap)
if ! docker info > /dev/null 2>&1; then
    packages+=(docker.io docker-compose)
fi

if ! dpkg --status "${packages[@]}" > /dev/null 2>&1; then
    "$(dirname "$0")/../../scripts/install_packages.sh" "${packages[@]}"
fi

# Compose v2 is in the next release of Debian only; its program runs here too.
plugins=/usr/local/lib/docker/cli-plugins
if ! docker compose version > /dev/null 2>&1; then
    work=$(mktemp -d)
    chmod 755 "$work"
    mkdir -p "$work/lists/partial" "$work/sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
        [ -f "$file" ] || continue
        # Without security updates, which have other names; they are paragraphs or lines.
        case $file in
            *.sources) awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' "$file" | sed 's/bookworm-updates//' ;;
            *) grep -vE 'security|bookworm-updates' "$file" || true ;;
        esac | sed 's/bookworm/trixie/g' > "$work/sources/$(basename "$file")"
    done
    apt=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/sources"
        -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" update -qq
    (cd "$work" && apt-get "${apt[@]}" download -qq docker-compose)
    dpkg --extract "$work"/docker-compose_*.deb "$work/files"
    install -D "$work/files/usr/libexec/docker/cli-plugins/docker-compose" "$plugins/docker-compose"
    rm -r "$work"
fi
