"""Mode geo: of how many workers a change is averaged."""

from __future__ import annotations

import pytest
from coordinator_rig import Rig


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, data={"task_rows": 5})  # of 20 tasks
    rig.assemble()
    return rig


def learners(rig, name):
    return rig.service.rendezvous(name).learners


def train(rig, *names):
    """Each of these does a task, in turn."""
    for name in names:
        task = rig.task(name)
        rig.clock.advance(1)
        rig.finish_task(name, task)


def test_at_first_all_that_are_to_come(rig):
    assert learners(rig, "w0") == 2
    train(rig, "w0")
    assert learners(rig, "w0") == 2
    rig.register("worker", "late")
    assert learners(rig, "w0") == 3


def test_who_gets_on_is_counted(rig):
    train(rig, "w0", "w1", "w0", "w1")
    assert (learners(rig, "w0"), learners(rig, "w1")) == (2, 2)


def test_who_stands_still_is_not(rig):
    task = rig.task("w1")
    train(rig, "w0", "w0")
    assert learners(rig, "w0") == 1
    rig.finish_task("w1", task)
    assert (learners(rig, "w0"), learners(rig, "w1")) == (2, 2)
    train(rig, "w0", "w0", "w0")
    assert learners(rig, "w0") == 1


def test_who_has_left_is_not(rig):
    train(rig, "w0", "w1", "w0", "w1")
    rig.service.release("w1")
    rig.service.heartbeat("w1", "exited")
    assert learners(rig, "w0") == 1


def test_one_that_joins(rig):
    train(rig, "w0", "w1", "w0", "w1")
    rig.register("worker", "late")
    rig.service.heartbeat("late", "running")
    train(rig, "w0", "late", "w1", "w0")
    assert (learners(rig, "w0"), learners(rig, "late")) == (3, 3)
