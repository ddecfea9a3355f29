#!/usr/bin/env bash
# Build the image that every role of a job runs: fleetps:<version>, also called fleetps:local.
# docs/docker.md has examples.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'END'
usage: scripts/build_image.sh [options] [-- options for `docker build`]

  --wheelhouse   first download the Python packages into wheelhouse/, by the lock file and its hashes
  --offline      take Python packages from wheelhouse/ only; with a --base that has Debian's packages
                 too (docs/docker.md), nothing needs a network
  --gpu          for NVIDIA GPUs: on Paddle's image for CUDA 12.0, named fleetps:<version>-gpu
  --tls          build fleetps-tls instead: stunnel, for the profile tls of docker-compose.yml
  --base IMAGE   another base image
  --name NAME    another name than fleetps (fleetps-tls)

DOCKER names another program than docker, such as podman.
END
}

fail() {
    echo "build_image.sh: $1" >&2
    exit 2
}

docker=${DOCKER:-docker}
# podman's own format of images has no health check; docker knows no other than its own.
export BUILDAH_FORMAT=docker
wheels=wheelhouse
base="" gpu="" name="" offline="" tls="" download=""
while [ $# -gt 0 ]; do
    case $1 in
        --wheelhouse) download=yes ;;
        --offline) offline=yes ;;
        --gpu) gpu=yes ;;
        --tls) tls=yes ;;
        --base | --name)
            [ $# -gt 1 ] || fail "$1 needs a value"
            [ "$1" = --base ] && base=$2 || name=$2
            shift
            ;;
        --help | -h)
            usage
            exit
            ;;
        --)
            shift
            break
            ;;
        *) fail "$1 is not an option; see --help" ;;
    esac
    shift
done

lock=requirements.lock
suffix=""
arguments=()
if [ -n "$gpu" ]; then
    lock=requirements-gpu.lock
    suffix=-gpu
    base=${base:-paddlepaddle/paddle:2.6.2-gpu-cuda12.0-cudnn8.9-trt8.6}
    # That image has a Python of its own, and Ubuntu's would be too old.
    arguments+=(--build-arg PYTHON=python3.10 --build-arg BUILD_PACKAGES=binutils
        --build-arg "APT_PACKAGES=libgomp1 tini")
fi

if [ -n "$download" ]; then
    python=${PYTHON:-python3}
    echo "downloading what $lock names into $wheels/"
    "$python" -m pip --disable-pip-version-check download --quiet --require-hashes --no-deps \
        --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux2014_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux1_x86_64 \
        --dest "$wheels" --requirement "$lock"
fi

if [ -n "$offline" ]; then
    [ -d "$wheels" ] || fail "--offline needs $wheels/: make it with --wheelhouse where there is a network"
    arguments+=(--build-arg PIP_NO_INDEX=1)
elif [ -d "$wheels" ]; then
    echo "$wheels/ is there: pip uses it where it fits"
fi

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' fleetps/__init__.py)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision=$revision-dirty
target=fleetps
[ -z "$tls" ] || target=tls
[ -n "$name" ] || name=fleetps${tls:+-tls}
[ -z "$base" ] || arguments+=(--build-arg "BASE_IMAGE=$base")

"$docker" build --file docker/Dockerfile --target "$target" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
    --tag "$name:$version$suffix" --tag "$name:local$suffix" "${arguments[@]}" "$@" .
echo "built $name:$version$suffix, also called $name:local$suffix"
