"""What may happen to a job's containers; every row is trained all the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from docker.models.containers import Container
from stack import Stack, composes

pytestmark = pytest.mark.docker

ROWS = 200_000
EPOCHS = 5  # long enough for all disturbances


def first_process(container: Container) -> psutil.Process:
    """As the host sees it."""
    container.reload()
    return psutil.Process(container.attrs["State"]["Pid"])


def paddle_process(container: Container) -> psutil.Process:
    return next(
        process
        for process in first_process(container).children(recursive=True)
        if any("fleetps.training" in word for word in process.cmdline())
        and any(word.endswith("python") for word in process.cmdline()[:1])
    )


def in_network_of(container: Container, *command: str) -> None:
    enter = ["nsenter", "--target", str(first_process(container).pid), "--net"]
    subprocess.run([*enter, *command], check=True, capture_output=True)


@contextmanager
def losing_packets(container: Container) -> Iterator[None]:
    """One in fifty of what comes."""
    rule = ["INPUT", "-m", "statistic", "--mode", "random", "--probability", "0.02", "-j", "DROP"]
    in_network_of(container, "iptables", "-A", *rule)
    yield
    in_network_of(container, "iptables", "-D", *rule)


@contextmanager
def slow_network(container: Container) -> Iterator[None]:
    shape = ["dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "32kbit", "latency", "400ms"]
    in_network_of(container, "tc", "qdisc", "add", *shape)
    yield
    in_network_of(container, "tc", "qdisc", "del", "dev", "eth0", "root")


class Faults:
    """Each does something to a job that trains, and returns when it trains again."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def goes_on(self) -> None:
        """Rows are trained by as many workers and servers as before."""

        def whole(status: dict) -> bool:
            assert status["job"] in ("waiting", "running"), f"{status}\n{self.stack.story()}"
            running = sum(heard_of(worker, "running") for worker in status["workers"]) >= 2
            serving = sum(heard_of(server, "serving") for server in status["servers"]) == 2
            return running and serving and status["rows_per_second"] > 0

        def heard_of(member: dict, state: str) -> bool:
            """Lately: a dead one is missed only after five heartbeats."""
            return member["state"] == state and member["heartbeat_age"] < 3

        done = self.stack.wait("training again", whole)["rows_done"]
        self.stack.wait("further", lambda status: status["rows_done"] > done)

    def server(self) -> Container:
        return self.stack.containers("server")[1]

    def worker(self) -> Container:
        return self.stack.containers("worker")[1]

    def a_pause(self) -> None:
        self.worker().pause()
        time.sleep(2)  # the pause itself
        self.worker().unpause()

    def a_network_that_loses_packets_and_is_slow(self) -> None:
        if not all(shutil.which(tool) for tool in ("nsenter", "iptables", "tc")):
            return
        with losing_packets(self.server()), slow_network(self.worker()):
            time.sleep(3)  # that long

    def a_cut(self) -> None:
        network = self.stack.engine.client.networks.get(f"{self.stack.project}_cluster")
        worker = self.worker()
        network.disconnect(worker)
        time.sleep(4)  # longer than the heartbeats that may be missed
        network.connect(worker, aliases=["worker"])

    def memory_that_runs_out(self) -> None:
        """For the Paddle process; its agent lives, and starts another one."""
        worker = self.worker()
        child = paddle_process(worker)
        # The kernel is to choose this one, whatever else is large.
        Path(f"/proc/{child.pid}/oom_score_adj").write_text("1000")
        limit = worker.attrs["HostConfig"]["Memory"]
        memory = worker.stats(stream=False, one_shot=True)["memory_stats"]
        worker.update(mem_limit=(small := memory["usage"] + (16 << 20)), memswap_limit=small)
        try:
            # More than the kernel gets by giving up what it keeps of files.
            files = memory["stats"]["active_file"] + memory["stats"]["inactive_file"]
            worker.exec_run(["python", "-c", f"bytearray({files + (96 << 20)})"])
            psutil.wait_procs([child], timeout=20)
        finally:
            worker.update(mem_limit=limit, memswap_limit=limit)
        assert not child.is_running(), "the kernel has not ended it"

    def a_worker_that_is_stopped(self) -> None:
        worker = self.worker()
        worker.stop(timeout=30)
        worker.wait(timeout=30)
        assert worker.wait()["StatusCode"] == 0, self.stack.story()
        worker.start()

    def a_worker_container_that_dies(self) -> None:
        self._kill(self.worker())

    def a_server_container_that_dies(self) -> None:
        self._kill(self.server())

    def a_server_process_that_dies(self) -> None:
        child = paddle_process(self.server())
        child.kill()
        psutil.wait_procs([child], timeout=20)

    def the_coordinator_s_container_dies(self) -> None:
        self._kill(self.stack.containers("coordinator")[0])

    def _kill(self, container: Container) -> None:
        """Docker starts it again."""
        before = first_process(container)
        os.kill(before.pid, signal.SIGKILL)
        self.stack.until(lambda: runs_again(container, before.pid), f"{container.name} again")


def runs_again(container: Container, pid: int) -> bool:
    container.reload()
    return container.status == "running" and container.attrs["State"]["Pid"] != pid


DEATHS = (
    Faults.memory_that_runs_out,
    Faults.a_worker_container_that_dies,
    Faults.a_server_container_that_dies,
    Faults.the_coordinator_s_container_dies,
)
DISTURBANCES = (
    Faults.a_pause,
    Faults.a_network_that_loses_packets_and_is_slow,
    Faults.a_cut,
    Faults.a_worker_that_is_stopped,
    Faults.a_server_process_that_dies,
)


def test_any_container_may_die(stack: Stack) -> None:
    """In a job without end, which is stopped after the first epoch that nothing happened to."""
    stack.options += ["--set job.epochs=500", "--set checkpoint.every.tasks=4"]
    stack.patience = 60  # longer than the coordinator is away
    faults = Faults(stack)
    with stack.running("run", "--rm", "-T", "done") as waiting:
        faults.goes_on()
        confined(stack)
        for fault in DEATHS:
            fault(faults)
            faults.goes_on()
        last = stack.wait("an answer", lambda _: True)["epoch"]
        status = stack.wait("a whole epoch", lambda status: status["epoch"] > last)
        assert [epoch["train_rows"] for epoch in status["history"]] == [ROWS] * (last + 1)
        stack.compose("stop")
        stack.ended(waiting, code=143)
        assert set(stack.codes().values()) == {0, 143}, stack.story()


@pytest.mark.thorough
def test_a_job_is_disturbed_under_the_other_compose(stack: Stack) -> None:
    """Where Compose 1.29 is installed, it has this one."""
    stack.use(composes(stack.engine)[-1])
    stack.options.append(f"--set job.epochs={EPOCHS}")
    stack.up()
    faults = Faults(stack)
    faults.goes_on()
    for fault in DISTURBANCES:
        fault(faults)
        faults.goes_on()
    stack.compose("run", "--rm", "-T", "done")
    stack.wait_for_end()
    result = stack.result()
    assert result["state"] == "done"
    assert result["accounting"]["held"] == result["accounting"]["waiting"] == 0
    assert [epoch["train_rows"] for epoch in result["history"]] == [ROWS] * EPOCHS


def confined(stack: Stack) -> None:
    """What the file says is in force."""
    for container in stack.containers():
        if container.status != "running":
            continue
        process = first_process(container)
        status = dict(
            line.split(":\t", 1)
            for line in open(f"/proc/{process.pid}/status").read().splitlines()  # noqa: SIM115
            if ":\t" in line
        )
        assert set(status["Uid"].split()) == {"10001"}, container.name
        for kind in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, container.name
        assert status["NoNewPrivs"] == "1", container.name
        code, _ = container.exec_run(["touch", "/opt/venv/x"])
        assert code != 0, f"{container.name} can write into its image"
        assert container.attrs["HostConfig"]["Memory"] > 0
        assert container.attrs["HostConfig"]["PidsLimit"] > 0
