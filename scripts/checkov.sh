#!/usr/bin/env bash
# What checkov has to say about k8s/base, the overlays and the rest: scripts/checkov.sh PATH/TO/checkov
set -euo pipefail
checkov=${1:?the path of checkov: make checkov installs it}
cd "$(dirname "$0")/.."

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
while IFS= read -r file; do
    grep -q '^kind: Component' "$file" && continue
    directory=$(dirname "$file")
    kubectl kustomize "$directory" > "$built/${directory//\//-}.yaml"
done < <(find k8s -name kustomization.yaml | sort)
cp k8s/loader.yaml "$built/"

"$checkov" --config-file k8s/checkov.yaml --skip-download --directory "$built"
echo "checkov: nothing to say about $(find "$built" -name '*.yaml' | wc -l) sets of manifests"
