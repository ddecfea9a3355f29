"""A pod-template run: the templates of k8s/base as containers, through what may happen to pods.

Not a Kubernetes test: pods.py and controllers.py play kubelet and controllers, as far as they go.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from controllers import Cluster, Job, action_on
from pods import Pod, quantity

from fleetps.k8s.render import Wanted, render

pytestmark = pytest.mark.docker

CONFIG = Path(__file__).parents[2] / "conf" / "quickstart.yaml"
ROWS, TEST_ROWS = 100_000, 20_000
LEAST_AUC = 0.7
COORDINATOR, SERVER, WORKER = (
    "StatefulSet/fleetps-coordinator", "StatefulSet/fleetps-server", "Job/fleetps-worker",
)  # fmt: skip


Status = dict[str, Any]


class Run:
    """The job of k8s/base, small, and what the test does to it."""

    def __init__(self, cluster: Cluster, directory: Path, image: str) -> None:
        self.cluster = cluster
        self.directory = directory
        self._image = image
        self._token = secrets.token_hex(24)

    def apply(self, epochs: int) -> None:
        job = yaml.safe_load(CONFIG.read_text())
        job["job"]["epochs"] = epochs
        job["data"]["synthetic"].update(rows=ROWS, test_rows=TEST_ROWS)
        job["checkpoint"] = {"every": {"tasks": 4}}
        file = self.directory / "job.yaml"
        file.write_text(yaml.safe_dump(job))
        secret = {
            "kind": "Secret",
            "metadata": {"name": "fleetps-token"},
            "stringData": {"token": self._token},
        }
        self.cluster.apply([secret, *render(Wanted(file, image=self._image))])

    def scale(self, title: str, wanted: int) -> None:
        self.cluster.running[title].wanted = wanted

    def pods(self, title: str) -> list[Pod]:
        return self.cluster.pods(title)

    def status(self) -> Status:
        return self.cluster.status(self._token) or {}

    def wait(self, true, what: str) -> Status:
        """Until the status is so; the status."""

        def known() -> Status | None:
            status = self.status()
            failed = self.cluster.running[WORKER].verdict not in ("", "Complete")
            assert not failed, self.cluster.story()
            return status if status and true(status) else None

        return self.cluster.until(known, what)

    def trains(self, workers: int = 2) -> Status:
        """Rows are trained by so many workers and two servers."""

        def whole(status: Status) -> bool:
            assert status["job"] in ("waiting", "running"), f"{status}\n{self.cluster.story()}"
            running = [one for one in status["workers"] if one["state"] == "running"]
            serving = [one for one in status["servers"] if one["state"] == "serving"]
            return (len(running), len(serving)) == (workers, 2) and status["rows_per_second"] > 0

        done = self.wait(whole, f"{workers} workers that train")["rows_done"]
        return self.wait(lambda status: status["rows_done"] > done, "any further")

    # -- what happens --

    def workers_come_and_go(self, _status: Status) -> None:
        self.scale(WORKER, 3)
        self.trains(workers=3)
        self.scale(WORKER, 2)
        job = self.cluster.running[WORKER]
        self.cluster.until(lambda: len(self.pods(WORKER)) == 2, "gone")
        assert (job.ignored, job.failed) == (1, 0), self.cluster.story()

    def a_worker_is_killed(self, status: Status) -> None:
        """A node that is gone: no exit code that says anything, so it counts."""
        killed = self.pods(WORKER)[0]
        killed.delete(0)
        self.wait(lambda now: now["workers_lost"] > status["workers_lost"], "missed")
        job = self.cluster.running[WORKER]
        self.cluster.until(lambda: job.failed, "counted")
        assert (killed.codes, job.failed) == ([137], 1), self.cluster.story()

    def a_pod_is_killed(self, title: str) -> None:
        """It comes back under its name, with another address."""
        killed = self.pods(title)[0]
        killed.delete(0)

        def replaced() -> bool:
            there = {pod.name: pod for pod in self.pods(title)}
            return there.get(killed.name, killed).address != killed.address

        self.cluster.until(replaced, "there again")

    def a_server_is_killed(self, status: Status) -> None:
        self.a_pod_is_killed(SERVER)
        self.wait(lambda now: now["generation"] > status["generation"], "begun again")

    def a_server_hangs(self, _status: Status) -> None:
        """Its agent; kubelet sees by the age of its pulse that it does nothing any more."""
        pod = self.pods(SERVER)[1]
        address = pod.address
        (agent,) = pod.process.children()  # of tini
        agent.suspend()
        assert pod.run("touch", "-d", "2 minutes ago", "/tmp/fleetps.pulse") == 0
        self.cluster.until(lambda: pod.codes, "ended by its liveness probe")
        assert pod.codes == [137]
        assert (pod in self.pods(SERVER), pod.address) == (True, address)

    def the_coordinator_is_killed(self, status: Status) -> None:
        self.a_pod_is_killed(COORDINATOR)
        now = self.wait(lambda now: now["rows_done"] >= status["rows_done"], "where it was")
        assert now["generation"] == status["generation"]

    def is_stopped(self) -> None:
        """As k8s/README.md has it."""
        (coordinator,) = self.pods(COORDINATOR)
        for title in (COORDINATOR, WORKER, SERVER):
            self.scale(title, 0)
            self.cluster.until(lambda title=title: not self.pods(title), f"stopped: {title}")
        assert coordinator.codes[-1] == 143, self.cluster.story()


@pytest.fixture
def run(engine, images, shared) -> Iterator[Run]:
    directory = shared / "pods"
    directory.mkdir()
    cluster = Cluster(engine, directory, images["fleetps"])
    try:
        yield Run(cluster, directory, images["fleetps"])
    finally:
        cluster.remove()


@pytest.mark.thorough
@pytest.mark.pods
def test_pods_of_the_base(run) -> None:
    run.apply(epochs=1000)
    status = run.trains()
    for pod in run.cluster.pods():
        is_confined(pod)
    mistake = with_a_mistake(run)
    for happens in (
        Run.workers_come_and_go,
        Run.a_worker_is_killed,
        Run.a_server_is_killed,
        Run.a_server_hangs,
        Run.the_coordinator_is_killed,
    ):
        happens(run, status)
        status = run.trains()
    run.cluster.until(lambda: all(pod.ready for pod in run.cluster.pods()), "ready")
    assert {one["train_rows"] for one in status["history"]} == {ROWS}
    assert (mistake.verdict, mistake.failed) == ("PodFailurePolicy", 1), run.cluster.story()
    run.is_stopped()
    ends(run, epochs=status["epoch"] + 2)


def with_a_mistake(run: Run) -> Job:
    """Another Job of the same template, whose pods end with 2."""
    job = json.loads(json.dumps(run.cluster.objects["Job", "fleetps-worker"]))
    job["metadata"]["name"] = "mistake"
    job["spec"]["parallelism"] = 1
    job["spec"]["template"]["spec"]["containers"][0]["args"].append("--set=optimizer.nonsense=1")
    run.cluster.apply([job])
    return run.cluster.running["Job/mistake"]


def is_confined(pod: Pod) -> None:
    """What its template says is in force."""
    text = Path(f"/proc/{pod.process.pid}/status").read_text()
    status = {
        name: value.split() for name, _, value in (one.partition(":") for one in text.splitlines())
    }
    assert set(status["Uid"]) == set(status["Gid"]) == {"10001"}
    assert status["Groups"] == ["10001"]
    assert {int(*status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd", "Amb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    memory = pod.container.stats(stream=False, one_shot=True)["memory_stats"]["limit"]
    assert memory == quantity(pod.main["resources"]["limits"]["memory"])
    read_only = ["/app/conf/x", "/etc/fleetps/x", "/run/secrets/fleetps/x"]
    if not pod.name.startswith("fleetps-coordinator"):
        read_only.append("/app/data/x")
    for place in read_only:
        assert pod.run("touch", place) != 0, f"{pod.name} can write {place}"


def ends(run: Run, epochs: int) -> None:
    """With another job file, of so many epochs, it goes on from its checkpoint to its end."""
    run.apply(epochs)
    job = run.cluster.running[WORKER]
    run.cluster.until(lambda: job.verdict, "ended")
    assert (job.verdict, job.failed) == ("Complete", 0), run.cluster.story()
    status = run.wait(lambda status: status["job"] == "done", "done")
    own = run.directory / "claims" / "runs-fleetps-coordinator-0"
    result = json.loads((own / "quickstart" / "result.json").read_text())
    assert [one["train_rows"] for one in result["history"]] == [ROWS] * epochs
    assert result["final"]["evaluated_rows"] == TEST_ROWS
    assert result["final"]["auc"] > LEAST_AUC
    accounting = result["accounting"]
    assert accounting["held"] == accounting["waiting"] == accounting["quarantined"] == 0
    # These stay, or they would begin again.
    stayed = [*run.pods(COORDINATOR), *run.pods(SERVER)]
    assert [pod.codes for pod in stayed] == [[], [], []], status
    for title in (COORDINATOR, SERVER):
        run.scale(title, 0)
    run.cluster.until(lambda: not run.cluster.pods(), "gone")
    assert {pod.codes[-1] for pod in stayed} <= {0, 143}
    assert [one.labels.get("app.kubernetes.io/name") for one in run.cluster.containers()] == [None]


@pytest.mark.parametrize(("code", "action"), [(2, "FailJob"), (143, "Ignore"), (137, "Count")])
def test_what_the_job_controller_would_do(code, action) -> None:
    (job,) = (one for one in render(Wanted(CONFIG)) if one["kind"] == "Job")
    assert action_on(code, job["spec"]["podFailurePolicy"]["rules"]) == action
