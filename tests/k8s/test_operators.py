"""Our image finds its role with what the operators of PaddleJobs set in its pods.

What they set was read in their sources: controllers/paddlejob_helper.go of paddle-operator 0.3, and
pkg/controller.v1/paddlepaddle/envvar.go of Kubeflow's training-operator 1.9.
"""

from __future__ import annotations

from typing import Any

import pytest
from manifests import Manifests, Pods, environment
from overlays import built

from fleet_config.errors import UserError
from fleet_config.roles import Role, resolve_role
from fleetps.agents.restart_policy import RESTART


def paddleflow(job: dict[str, Any], kind: str, index: int) -> dict[str, str]:
    """For pod `index` of `kind` (ps, worker), with `intranet: Service`."""
    name = job["metadata"]["name"]
    hosts = {
        one: [f"{name}-{one}-{i}" for i in range(job["spec"][one]["replicas"])]
        for one in ("ps", "worker")
    }
    endpoints = {one: ",".join(f"{host}:36000" for host in hosts[one]) for one in hosts}
    role = {"ps": "PSERVER", "worker": "TRAINER"}[kind]
    return {
        # of each pod
        "POD_IP": hosts[kind][index],
        "PADDLE_TRAINER_ID": str(index),
        "TRAINING_ROLE": role,
        "PADDLE_TRAINING_ROLE": role,
        # of a ConfigMap
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": endpoints["ps"],
        "PADDLE_TRAINER_ENDPOINTS": endpoints["worker"],
        "PADDLE_TRAINERS": ",".join(hosts["worker"]),
        "PADDLE_TRAINERS_NUM": str(len(hosts["worker"])),
    }


def kubeflow(job: dict[str, Any], kind: str, index: int) -> dict[str, str]:
    """For pod `index` of `kind` (Master, Worker)."""
    name, specs = job["metadata"]["name"], job["spec"]["paddleReplicaSpecs"]
    first = kind == "Master" and index == 0
    return {
        "PYTHONUNBUFFERED": "0",
        "PADDLE_JOB_ID": name,
        "PADDLE_NNODES": str(sum(one["replicas"] for one in specs.values())),
        **({"POD_IP_DUMMY": "10.0.0.1"} if first else {}),
        "PADDLE_MASTER": "10.0.0.1:36543" if first else f"{name}-master-0:36543",
        {"Master": "PADDLE_SERVER_NUM", "Worker": "PADDLE_TRAINER_NUM"}[kind]: "1",
    }


def job_and_pods(overlay: str) -> tuple[dict[str, Any], dict[str, Pods]]:
    objects = Manifests(built(f"paddlejob/{overlay}"))
    job = objects.named("PaddleJob", "fleetps")
    assert job is not None
    return job, {one.component: one for one in objects.pods}


def own(pods: Pods) -> dict[str, str]:
    assert pods.main is not None
    return environment(pods, pods.main)


def test_paddleflow() -> None:
    job, pods = job_and_pods("paddleflow")
    server = resolve_role({**own(pods["server"]), **paddleflow(job, "ps", 1)})
    assert server == Role(
        "server",
        rank=1,
        servers=("fleetps-ps-0:36000", "fleetps-ps-1:36000"),
        workers=("fleetps-worker-0:36000", "fleetps-worker-1:36000"),
        worker_count=2,
        endpoint="fleetps-ps-1:36000",
        coordinator="fleetps-coordinator:7000",
        source="TRAINING_ROLE=PSERVER",
    )
    assert pods["server"].port(36000) == 36000
    worker = resolve_role({**own(pods["worker"]), **paddleflow(job, "worker", 0)})
    assert (worker.kind, worker.rank, worker.servers) == ("worker", 0, server.servers)
    assert worker.coordinator == "fleetps-coordinator:7000"


def test_paddleflow_without_a_coordinator_of_our_own() -> None:
    """As in a PaddleJob that was written for another image: server 0 starts one beside itself."""
    job, _ = job_and_pods("paddleflow")
    first, second = (resolve_role(paddleflow(job, "ps", index)) for index in (0, 1))
    assert (first.hosts_coordinator, second.hosts_coordinator) == (True, False)
    assert first.coordinator == second.coordinator == "fleetps-ps-0:37000"


def test_kubeflow() -> None:
    job, pods = job_and_pods("kubeflow")
    for index in (0, 1):
        server = resolve_role({**own(pods["server"]), **kubeflow(job, "Master", index)})
        assert server == Role(
            "server",
            endpoint="10.0.0.1:6174",  # its pod's address; the coordinator gives its rank
            coordinator="fleetps-coordinator:7000",
            source="ROLE=SERVER",
        )
    worker = resolve_role({**own(pods["worker"]), **kubeflow(job, "Worker", 1)})
    assert worker == Role("worker", coordinator="fleetps-coordinator:7000", source="ROLE=WORKER")
    for one in pods.values():
        assert one.component == "coordinator" or one.main["name"] == "paddle"


@pytest.mark.parametrize("kind", ["Master", "Worker"])
def test_kubeflow_without_a_role_needs_paddles_launcher(kind) -> None:
    job, _ = job_and_pods("kubeflow")
    with pytest.raises(UserError, match=r"python -m paddle\.distributed\.launch"):
        resolve_role(kubeflow(job, kind, 0))


@pytest.mark.parametrize("overlay", ["paddleflow", "kubeflow"])
def test_who_ends_is_done(overlay) -> None:
    """These operators take 0 for done, of servers too, and start again whatever ends otherwise."""
    job, pods = job_and_pods(overlay)
    for kind in ("server", "worker"):
        assert own(pods[kind])[RESTART] == "until-done"
        assert pods[kind].spec.get("restartPolicy", "OnFailure") == "OnFailure"
    specs = job["spec"].get("paddleReplicaSpecs", {})
    assert {one["restartPolicy"] for one in specs.values()} <= {"OnFailure"}
