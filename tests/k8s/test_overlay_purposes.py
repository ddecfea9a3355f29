"""Each overlay does what it is for."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import validation
import yaml
from check_pods import quantity
from findings import findings
from manifests import ROOT, Manifests, Object, kustomize, title
from overlays import COMPONENTS, EXPECTED, EXTERNAL, OVERLAYS, built, names

import fleetps


def _pods(name: str) -> dict[str, Any]:
    return {pods.component: pods for pods in Manifests(built(name)).pods}


@pytest.mark.parametrize("name", names())
def test_images_are_of_this_version(name) -> None:
    images = [one["image"] for pods in Manifests(built(name)).pods for one in pods.containers]
    tags = {image.rpartition(":")[2].partition("-")[0] for image in images}
    assert tags == {fleetps.__version__}


def test_minimal_needs_little_and_one_node() -> None:
    objects = Manifests(built("minimal"))
    wanted = sum(quantity(_requests(pods)["cpu"]) * _replicas(pods) for pods in objects.pods)
    assert wanted <= 1
    claims = [one["spec"] for one in objects.of("PersistentVolumeClaim")]
    assert {tuple(one["accessModes"]) for one in claims} == {("ReadWriteOnce",)}
    assert all("topologySpreadConstraints" not in pods.spec for pods in objects.pods)


def _requests(pods: Any) -> dict[str, str]:
    return dict(pods.main["resources"]["requests"])


def _replicas(pods: Any) -> int:
    spec = pods.owner["spec"]
    return int(spec.get("replicas", spec.get("parallelism")))


def test_gpus_are_for_workers_only() -> None:
    pods = _pods("gpu")
    gpus = {
        kind: one.main["resources"]["limits"].get("nvidia.com/gpu") for kind, one in pods.items()
    }
    assert gpus == {"coordinator": None, "server": None, "worker": "1"}
    assert pods["worker"].main["image"] == f"{pods['server'].main['image']}-gpu"
    assert pods["worker"].spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_rules_are_those_of_monitoring() -> None:
    """Mend it with: python scripts/prometheus_rule.py"""
    rules = yaml.safe_load((ROOT / "monitoring" / "rules.yml").read_text())
    made = next(one for one in built("monitoring") if one["kind"] == "PrometheusRule")
    assert made["spec"] == rules


def test_all_dashboards_are_there() -> None:
    made = Manifests(built("monitoring")).named("ConfigMap", "fleetps-dashboards")
    files = (ROOT / "monitoring" / "grafana" / "dashboards").glob("*.json")
    assert made["data"] == {file.name: file.read_text(encoding="utf-8") for file in files}


def test_monitors_scrape_as_prometheus_yml_does() -> None:
    config = yaml.safe_load((ROOT / "monitoring" / "prometheus.yml").read_text())
    scrapes = {one["job_name"]: one for one in config["scrape_configs"]}
    objects = Manifests(built("monitoring"))
    (coordinator,) = objects.named("ServiceMonitor", "fleetps")["spec"]["endpoints"]
    monitor = objects.named("PodMonitor", "fleetps-servers")["spec"]
    (server,) = monitor["podMetricsEndpoints"]
    for endpoint, job in ((coordinator, "fleetps"), (server, "fleetps-servers")):
        assert endpoint["interval"] == config["global"]["scrape_interval"]
        assert endpoint["path"] == scrapes[job].get("metrics_path", "/metrics")
        assert {"targetLabel": "job", "replacement": job} in endpoint["relabelings"]
    changes = [_snake(one) for one in server["metricRelabelings"]]
    assert changes == scrapes["fleetps-servers"]["metric_relabel_configs"]
    assert coordinator["authorization"]["type"] == scrapes["fleetps"]["authorization"]["type"]
    # Each monitor finds what it is for.
    assert [pods.component for pods in objects.selected(monitor["selector"])] == ["server"]


def _snake(relabeling: dict[str, Any]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(key, key): value for key, value in relabeling.items()}


def test_dashboards_find_their_prometheus() -> None:
    made = Manifests(built("monitoring")).named("ConfigMap", "fleetps-datasource")
    (source,) = yaml.safe_load(made["data"]["fleetps.yaml"])["datasources"]
    provisioned = ROOT / "monitoring" / "grafana" / "provisioning" / "datasources"
    (own,) = yaml.safe_load((provisioned / "prometheus.yml").read_text())["datasources"]
    assert (source["uid"], source["type"]) == (own["uid"], own["type"])


def test_tls_leads_everybody_where_they_think_they_go() -> None:
    objects = Manifests(built("tls"))
    for pods in objects.pods:
        (proxy,) = pods.spec["initContainers"]
        known = {one["name"]: one.get("value") for one in proxy["env"]}
        assert known["CERTIFICATE"] == pods.component
        certificate = objects.named("Certificate", f"fleetps-{pods.component}")["spec"]
        assert certificate["dnsNames"] == [pods.component]
        for way in (known.get("REACHES") or "").split():
            here, _, peer = way.partition("=")
            host, name = peer.split("/")
            pod, _, service = host.rpartition(".")
            assert objects.named("Service", service)["spec"]["ports"][0]["port"] == 7443
            assert name == (pod or service).split("-")[1]
            assert here == (f"127.0.1.{pod[-1]}:6174" if pod else "127.0.0.1:7000")
    worker, server = (_pods("tls")[kind] for kind in ("worker", "server"))
    reached = worker.spec["initContainers"][0]["env"][-1]["value"]
    assert reached.count("fleetps-server-") == _replicas(server)


def test_tls_leaves_no_port_open_but_the_proxys() -> None:
    objects = Manifests(built("tls"))
    assert {number for pods in objects.pods for number in pods.ports.values()} == {7443}
    ports = [
        port["port"]
        for one in objects.of("NetworkPolicy")
        for rule in [*one["spec"].get("ingress", []), *one["spec"].get("egress", [])]
        for port in rule.get("ports", [])
    ]
    assert set(ports) == {53, 7443}


def test_images_have_to_be_signed_all_of_them() -> None:
    policy = next(one for one in built("verify-image") if one["kind"] == "Policy")["spec"]
    (rule,) = policy["rules"]
    assert (policy["validationFailureAction"], policy["failurePolicy"]) == ("Enforce", "Fail")
    assert rule["verifyImages"][0]["imageReferences"] == ["*"]


def test_kueue_has_all_that_makes_pods() -> None:
    objects = Manifests(built("kueue"))
    queue = next(objects.of("LocalQueue"))["metadata"]["name"]
    labels = {pods.where: pods.owner["metadata"]["labels"] for pods in objects.pods}
    assert len(labels) == 3
    assert {one["kueue.x-k8s.io/queue-name"] for one in labels.values()} == {queue}


def test_volcano_waits_for_what_the_base_has() -> None:
    objects = Manifests(built("volcano"))
    group = next(objects.of("PodGroup"))
    assert group["spec"]["minMember"] == sum(_replicas(pods) for pods in objects.pods)
    for name, total in group["spec"]["minResources"].items():
        requested = [quantity(_requests(pods)[name]) * _replicas(pods) for pods in objects.pods]
        assert quantity(total) == sum(requested, Decimal(0)), name
    for pods in objects.pods:
        assert pods.spec["schedulerName"] == "volcano"
        annotations = pods.template["metadata"]["annotations"]
        assert annotations["scheduling.k8s.io/group-name"] == group["metadata"]["name"]


@pytest.mark.parametrize("name", ["jobset", "paddlejob/kubeflow", "paddlejob/paddleflow"])
def test_other_kinds_have_the_pods_of_the_base(name) -> None:
    base = {pods.component: pods for pods in Manifests(kustomize(ROOT / "k8s" / "base")).pods}
    for kind, pods in _pods(name).items():
        for key in ("args", "image", "resources", "securityContext", "livenessProbe"):
            assert pods.main[key] == base[kind].main[key]
        assert pods.labels == base[kind].labels


def test_a_jobset_ends_as_the_coordinator_does() -> None:
    spec = Manifests(built("jobset")).named("JobSet", "fleetps")["spec"]
    jobs = {one["name"]: one["template"]["spec"] for one in spec["replicatedJobs"]}
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["coordinator"]
    named = [name for rule in spec["failurePolicy"]["rules"] for name in _targets(rule)]
    assert set(named) == set(jobs)
    for one in jobs.values():
        assert one["template"]["spec"]["restartPolicy"] == "Never"
        assert one["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]
        env = {v["name"]: v.get("value") for v in one["template"]["spec"]["containers"][0]["env"]}
        assert env["FLEETPS_RESTART"] == "until-done"


def _targets(rule: dict[str, Any]) -> list[str]:
    return list(rule.get("targetReplicatedJobs", []))


def _together(place: Path, base: Path, *components: str) -> list[Object]:
    """Built as in an overlay of one's own."""
    whole = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "fleetps",
        "resources": [os.path.relpath(base, place)],
        "components": [os.path.relpath(COMPONENTS / name, place) for name in components],
    }
    (place / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    return kustomize(place)


def test_they_go_together(tmp_path) -> None:
    objects = _together(tmp_path, OVERLAYS / "production", "monitoring", "gpu", "kueue")
    assert findings(objects, EXTERNAL["production"]) == EXPECTED["production"]
    assert list(validation.complaints(objects, "1.31.0")) == []
    kinds = {title(one) for one in objects}
    assert {"ServiceMonitor/fleetps", "LocalQueue/fleetps", "NetworkPolicy/fleetps-s3"} <= kinds


def test_prometheus_has_a_certificate_where_one_is_asked_for(tmp_path) -> None:
    parts = ("tls", "monitoring", "tls-monitoring")
    objects = _together(tmp_path, ROOT / "k8s" / "base", *parts)
    assert findings(objects) == EXPECTED["tls"]
    assert list(validation.complaints(objects, "1.31.0")) == []
    all_ = Manifests(objects)
    (endpoint,) = all_.named("ServiceMonitor", "fleetps")["spec"]["endpoints"]
    service = all_.named("Service", "fleetps-coordinator")["spec"]["ports"]
    assert endpoint["port"] in [port["name"] for port in service]
    tls = endpoint["tlsConfig"]
    assert [tls["serverName"]] == all_.named("Certificate", "fleetps-coordinator")["spec"][
        "dnsNames"
    ]
    for used in (tls["ca"]["secret"], tls["cert"]["secret"], tls["keySecret"]):
        assert all_.knows("Secret", used["name"])
    assert all_.named("PodMonitor", "fleetps-servers") is None


def test_a_jobset_waits_in_a_queue_as_a_whole(tmp_path) -> None:
    """As overlays/kueue says."""
    objects = Manifests(_together(tmp_path, OVERLAYS / "jobset", "kueue"))
    labels = objects.named("JobSet", "fleetps")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "fleetps"


def test_the_readme_has_them_all() -> None:
    text = (OVERLAYS / "README.md").read_text()
    assert sorted(re.findall(r"\| \[(\S+)\]\(", text)) == names()
