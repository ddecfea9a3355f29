"""A job that is asked to stop takes a checkpoint first, if there is something to save and time."""

from __future__ import annotations

import pytest
from coordinator_rig import Rig

from fleet_config.errors import EXIT_STOPPED


@pytest.fixture
def rig(tmp_path):
    rig = Rig(
        tmp_path, job={"epochs": 2}, checkpoint={"every": {"epochs": 1}}, cluster={"generations": 3}
    )
    rig.assemble()
    yield rig
    rig.check_accounting()


def stopped(rig):
    state = rig.service.stop("enough")
    assert (state.job, state.ending) == ("stopping", False)
    return state


def ends(rig):
    state = rig.service.stop("enough")
    assert (state.job, state.ending) == ("running", True)


def train(rig):
    """Until the epoch is to be evaluated."""
    for name in ["w0", "w1"] * 10:
        if rig.service.status().phase != "evaluate":
            rig.step(name)


class TestWithoutACheckpoint:
    def test_nothing_was_learnt(self, rig):
        rig.task("w0")
        assert stopped(rig).exit_code == EXIT_STOPPED

    def test_before_the_work_begins(self, tmp_path):
        rig = Rig(tmp_path, checkpoint={"every": {"epochs": 1}})
        rig.register("server", "s0")
        stopped(rig)

    def test_nobody_is_there_to_save(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        for name in ("w0", "w1"):
            rig.service.heartbeat(name, "exited")
        stopped(rig)

    def test_none_is_ever_taken(self, tmp_path):
        rig = Rig(tmp_path)
        rig.assemble()
        rig.finish_task("w0", rig.task("w0"))
        stopped(rig)

    def test_one_was_just_taken(self, rig):
        train(rig)
        stopped(rig)


class TestWithACheckpoint:
    def test_who_trains_stops_in_the_middle_of_its_task(self, rig):
        task = rig.task("w0")
        rig.service.lease("w1")
        rig.service.progress("w0", task.id, 5, 1, 3.5)
        ends(rig)
        assert rig.service.progress("w0", task.id, 5, 1, 3.5).ending
        rig.service.part_done("w0", task.id, 10, 2, 7.0)
        rig.service.release("w0", begun=False)
        rig.service.release("w1", begun=False)
        assert [rig.step(name).kind for name in ("w0", "w1", "w0")] == ["flush", "flush", "chore"]
        state = rig.state()
        assert (state.job, state.reason) == ("stopping", "enough")
        assert rig.service.status().checkpoint.rows == 10
        assert rig.service.lease("w1").kind == "stop"

    def test_it_may_be_asked_for_by_many(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        ends(rig)
        ends(rig)
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        assert rig.state().job == "stopping"

    def test_without_time(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        rig.task("w1")
        ends(rig)
        assert rig.pass_time(19, "s0", "w0", "w1").job == "running"
        state = rig.pass_time(2, "s0", "w0", "w1")
        assert (state.job, state.exit_code) == ("stopping", EXIT_STOPPED)
        assert state.reason == (
            "enough; no checkpoint was taken within 20 s (cluster.deadlines.grace)"
        )

    def test_one_that_is_being_taken_is_the_last(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        rig.service.checkpoint("now")
        ends(rig)
        for name in ("w0", "w0"):
            rig.step(name)
        assert rig.state().job == "stopping"
        assert len(rig.texts("checkpoint")) == 1

    def test_the_one_that_saves_dies(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        rig.finish_task("w1", rig.task("w1"))
        ends(rig)
        for name in ("w0", "w1"):
            rig.step(name)
        rig.service.fail("w0", "killed", exit_code=-9)
        for _ in range(2):
            rig.step("w1")
        assert rig.state().job == "stopping"
        assert len(rig.texts("checkpoint")) == 1

    def test_a_server_dies(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        ends(rig)
        rig.service.fail("s0", "killed", exit_code=-9, again=True)
        assert rig.state().job == "stopping"

    def test_while_the_epoch_is_evaluated(self, tmp_path):
        rig = Rig(tmp_path, checkpoint={"every": {"epochs": None, "tasks": 100}})
        rig.assemble()
        train(rig)
        ends(rig)
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        assert rig.state().job == "stopping"
        assert rig.service.status().checkpoint.rows == 100

    def test_in_sync_the_groups_that_were_begun_are_done(self, tmp_path):
        rig = Rig(tmp_path, mode="sync", checkpoint={"every": {"epochs": 1}})
        rig.assemble()
        task = rig.task("w0")
        rig.finish_task("w0", task)
        ends(rig)
        part = rig.task("w1")
        assert part.rows_before == task.rows_before
        rig.finish_task("w1", part)
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        assert rig.state().job == "stopping"
