"""The manifests of k8s/base as plain YAML, for those without kustomize."""
