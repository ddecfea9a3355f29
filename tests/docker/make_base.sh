#!/usr/bin/env bash
# An image like debian:12-slim, made from Debian's packages instead of a registry's image.
# usage: make_base.sh NAME [PACKAGE...]; as root, DOCKER_HOST says where the engine is.
set -euo pipefail

name=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

include=$(IFS=,; echo "$*")
debootstrap --variant=minbase ${include:+--include="$include"} bookworm "$work/root" > "$work/log" 2>&1 \
    || { tail -n 20 "$work/log" >&2; exit 1; }
root=$work/root
# As in the images of debian-slim: no documentation, and nothing that apt could read again.
rm -rf "$root"/usr/share/{doc,man,info,locale,bug,lintian}/* "$root"/var/cache/debconf/*-old "$root"/var/log/* "$root"/var/lib/apt/lists/* \
    "$root"/var/cache/apt/*
cat > "$root/etc/dpkg/dpkg.cfg.d/slim" <<'END'
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
END
cat > "$root/etc/apt/apt.conf.d/docker-clean" <<'END'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
tar --create --directory "$root" --exclude=./dev/* . | "${DOCKER:-docker}" import - "$name"
