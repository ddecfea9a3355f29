"""What starts a process again, and what the process therefore does at the end of its job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from coordinator_rig import Rig

from fleet_config.errors import Stopped, UserError
from fleet_config.roles import Role
from fleetps import agent
from fleetps.agents.restart_policy import RESTART, restart_policy
from fleetps.agents.worker import WorkerAgent
from fleetps.coordinator.service import JobService
from fleetps.system.pulse_file import AGENT_PULSE, agent_pulse
from fleetps.system.signals import StopRequest


@pytest.mark.parametrize("text", ["", "always", "until-done"])
def test_known_policies(monkeypatch, text) -> None:
    monkeypatch.setenv(RESTART, text)
    assert restart_policy() == text


def test_an_unknown_policy_is_a_sentence(monkeypatch) -> None:
    monkeypatch.setenv(RESTART, "sometimes")
    with pytest.raises(UserError, match="FLEETPS_RESTART=sometimes is not known; use always or"):
        restart_policy()


@pytest.mark.parametrize("policy", ["", "always", "until-done"])
def test_a_worker_that_leaves_has_not_done_the_job(monkeypatch, tmp_path, policy) -> None:
    """0 would be taken for the end of the job by a Job of Kubernetes."""
    monkeypatch.setenv(RESTART, policy)
    rig, stop = Rig(tmp_path), StopRequest()
    worker = WorkerAgent(rig.job, Role("worker"), "127.0.0.1:1", stop, 1.0)
    if not policy:
        worker.leave_job(None)
        return
    with pytest.raises(Stopped, match="worker was asked to stop"):
        worker.leave_job(None)


class TestDone:
    @pytest.fixture
    def rig(self, tmp_path) -> Rig:
        rig = Rig(tmp_path)
        rig.assemble()
        rig.work("w0", "w1")
        for worker in ("w0", "w1"):
            rig.service.heartbeat(worker, "exited")
        rig.service.tick()
        assert rig.state().job == "done"
        rig.service.close()
        return rig

    def again(self, rig: Rig, *, stays: bool) -> JobService:
        return JobService(rig.job, rig.dataset, stays=stays, clock=rig.clock, wall=rig.clock)

    def test_it_stays_done(self, rig) -> None:
        service = self.again(rig, stays=True)
        assert service.status().job == "done"
        assert (rig.job.run_dir / "result.json").exists()
        # Who comes now hears it.
        service.register("server", "late", "10.0.0.3:1", None, rig.job.digest())
        assert service.heartbeat("late", "registered").job == "done"

    def test_without_that_it_begins_anew(self, rig) -> None:
        assert self.again(rig, stays=False).status().job == "waiting"

    def test_another_job_of_that_name_begins(self, rig) -> None:
        rig.job = rig.job.model_copy(update={"job": rig.job.job.model_copy(update={"seed": 2})})
        assert self.again(rig, stays=True).status().job == "waiting"


def test_who_is_always_started_again_stays_until_it_is_stopped() -> None:
    stop, ticks = StopRequest(), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            stop.signal = signal.SIGTERM

    agent._stay(stop, tick)
    assert len(ticks) == 3


class TestPulse:
    def test_the_file_is_touched(self, monkeypatch, tmp_path) -> None:
        file = tmp_path / "pulse"
        monkeypatch.setenv(AGENT_PULSE, str(file))
        with agent_pulse():
            assert file.exists()
            os.utime(file, (0, 0))
        assert file.stat().st_mtime > 0

    def test_a_place_that_is_not_there_is_a_sentence(self, monkeypatch, tmp_path) -> None:
        monkeypatch.setenv(AGENT_PULSE, str(tmp_path / "missing" / "pulse"))
        with (
            pytest.raises(UserError, match=r"FLEETPS_PULSE_FILE=.*can't be written"),
            agent_pulse(),
        ):
            pass

    def test_without_the_variable_nothing_happens(self, monkeypatch, tmp_path) -> None:
        monkeypatch.delenv(AGENT_PULSE, raising=False)
        monkeypatch.chdir(tmp_path)
        with agent_pulse():
            assert list(Path().iterdir()) == []
