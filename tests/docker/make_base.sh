#!/usr/bin/env bash
# An image like debian:12-slim, made from Debian's packages instead of a registry's image.
# usage: make_base.sh NAME [PACKAGE...]; as root, DOCKER_HOST says where the engine is.
set -euo pipefail

name=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As in the images of debian-slim: no documentation, and nothing that apt could read again. Files
# are not forced onto the disk one by one either: what is half done is thrown away.
# shellcheck disable=SC2016  # $1 is the hook's
mmdebstrap --variant=minbase --include="usr-is-merged $*" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/bug/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --dpkgopt=force-unsafe-io \
    --aptopt='DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; }' \
    --aptopt='Dir::Cache::pkgcache ""' --aptopt='Dir::Cache::srcpkgcache ""' \
    --customize-hook='find "$1"/usr/lib -depth -type d -name __pycache__ -exec rm -r {} +' \
    bookworm "$work/root.tar" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
"${DOCKER:-docker}" import "$work/root.tar" "$name"
