#!/usr/bin/env python3
"""Writes k8s/components/monitoring/rules.yaml: the rules of monitoring/rules.yml as an object.

That wants them in an object of its own, and kustomize can't put one file into another. The test
tests/k8s/test_overlays.py sees that both are the same.

    python scripts/prometheus_rule.py
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "monitoring" / "rules.yml"
TARGET = ROOT / "k8s" / "components" / "monitoring" / "rules.yaml"

_HEAD = """\
# Made of monitoring/rules.yml by scripts/prometheus_rule.py; change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: fleetps
  labels:
    app.kubernetes.io/name: fleetps
    app.kubernetes.io/instance: fleetps
    app.kubernetes.io/component: monitoring
    app.kubernetes.io/part-of: fleetps
spec:
"""


def rule(groups: str) -> str:
    """The object's text: everything from `groups:` on, two columns further right."""
    lines = groups[groups.index("groups:") :].splitlines()
    return _HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


if __name__ == "__main__":
    TARGET.write_text(rule(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
