"""How far workers may run ahead in mode bounded, checked against a simulation step by step."""

import math
import random

import pytest
from coordinator_rig import Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_config.errors import UserError
from fleetps.coordinator.clocks import Clocks, Lead, Reading


def test_the_limit_follows_the_slowest():
    clocks = Clocks(staleness=10, quorum=1.0)
    assert clocks.read("a", 0) == Reading(limit=10, slowest=0)
    assert clocks.read("b", 0) == Reading(limit=10, slowest=0)
    assert clocks.read("a", 8) == Reading(limit=10, slowest=0)
    assert clocks.read("b", 3) == Reading(limit=13, slowest=3)
    assert clocks.read("a", 8) == Reading(limit=13, slowest=3)
    assert clocks.lead("a") == Lead(clock=8, ahead=5)
    assert clocks.lead("b") == Lead(clock=3, ahead=0)


def test_alone_nobody_is_waited_for():
    clocks = Clocks(staleness=4, quorum=1.0)
    for steps in range(0, 40, 4):
        assert clocks.read("a", steps).limit == steps + 4


def test_a_late_joiner_starts_where_the_slowest_stands():
    clocks = Clocks(staleness=10, quorum=1.0)
    clocks.read("a", 0)
    clocks.read("b", 0)
    clocks.read("a", 100)
    clocks.read("b", 95)
    # In its own count: it has made no step, stands at 95 and may get to 105.
    assert clocks.read("c", 0) == Reading(limit=10, slowest=0)
    assert clocks.lead("c") == Lead(clock=95, ahead=0)
    assert clocks.read("a", 100).limit == 105
    clocks.read("c", 7)
    assert clocks.read("b", 95) == Reading(limit=105, slowest=95)
    assert clocks.read("c", 7) == Reading(limit=10, slowest=0)


def test_who_leaves_is_not_waited_for_and_comes_back_level():
    clocks = Clocks(staleness=10, quorum=1.0)
    clocks.read("a", 10)
    clocks.read("b", 0)
    clocks.read("a", 20)
    assert clocks.read("a", 20).limit == 20
    clocks.leave("b")
    assert clocks.read("a", 20).limit == 30
    assert clocks.lead("b") is None
    assert clocks.read("b", 2) == Reading(limit=12, slowest=2)
    assert clocks.read("a", 20).limit == 30
    clocks.leave("nobody")


def test_when_all_have_left_the_next_one_begins():
    clocks = Clocks(staleness=10, quorum=1.0)
    clocks.read("a", 5)
    clocks.leave("a")
    assert clocks.read("b", 3) == Reading(limit=13, slowest=3)


@pytest.mark.parametrize(
    ("quorum", "waited_for"),
    # The slowest of these places, all five workers at 0, 10, 20, 30, 40.
    [(1.0, 0), (0.81, 0), (0.8, 10), (0.6, 20), (0.59, 20), (0.4, 30), (0.2, 40), (0.01, 40)],
)
def test_a_quorum_does_not_wait_for_the_slowest_others(quorum, waited_for):
    clocks = Clocks(staleness=100, quorum=quorum)
    names = ("a", "b", "c", "d", "e")
    for name in names:
        clocks.read(name, 0)
    for place, name in enumerate(names):
        reading = clocks.read(name, place * 10)
    assert reading == Reading(limit=waited_for + 100, slowest=waited_for)


def test_who_was_not_waited_for_is_not_waited_for_later_either():
    """The slow worker's arrears must not stop the others when the quorum counts it again."""
    clocks = Clocks(staleness=10, quorum=0.8)
    names = ("slow", "b", "c", "d", "e")
    for steps in (0, 100):
        for name in names:
            clocks.read(name, 0 if name == "slow" else steps)
    assert clocks.read("b", 100).limit == 110
    clocks.leave("c")  # of four, all count
    assert clocks.read("b", 110) == Reading(limit=110, slowest=100)
    assert clocks.read("slow", 3) == Reading(limit=13, slowest=3)
    for name in ("d", "e"):
        clocks.read(name, 105)
    assert clocks.read("b", 110) == Reading(limit=110, slowest=100)
    clocks.read("slow", 6)
    assert clocks.read("b", 110) == Reading(limit=113, slowest=103)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    staleness=st.integers(1, 20),
    quorum=st.sampled_from([1.0, 0.8, 0.5, 0.34]),
)
def test_nobody_gets_further_ahead_than_the_bound(seed, staleness, quorum):
    """Workers of random speeds that obey, come and go; places are kept independently."""
    chance = random.Random(seed)
    clocks = Clocks(staleness, quorum)
    steps: dict[str, int] = {}
    limits: dict[str, int] = {}
    speeds = {name: chance.uniform(0.05, 1) for name in "abcdef"}
    slowest_before = 0
    for _ in range(300):
        name = chance.choice("abcdef")
        if chance.random() < 0.03:
            clocks.leave(name)
            limits.pop(name, None)
            limits = {other: limits[other] for other in limits if clocks.lead(other)}
            continue
        if name not in limits:
            steps[name] = chance.randrange(100)
        elif chance.random() < speeds[name]:
            steps[name] += chance.randint(0, limits[name] - steps[name])
        limits[name] = clocks.read(name, steps[name]).limit
        assert limits[name] > steps[name] or len(limits) > 1
        places = {other: lead.clock for other in limits if (lead := clocks.lead(other))}
        waited_for = math.ceil(quorum * len(places) - 1e-9)
        slowest = sorted(places.values())[-waited_for]
        assert max(places.values()) - slowest <= staleness
        assert slowest >= slowest_before
        slowest_before = slowest


class TestService:
    MODE = {"name": "bounded", "staleness": 10, "check_every": 5}

    @pytest.fixture
    def rig(self, tmp_path):
        rig = Rig(tmp_path, mode=self.MODE, job={"epochs": 2})
        rig.assemble()
        return rig

    def limit(self, rig, instance, steps, epoch=0):
        return rig.service.clock(instance, epoch, steps).limit

    def test_a_worker_that_trains_is_waited_for(self, rig):
        for name in ("w0", "w1"):
            rig.task(name)
        assert self.limit(rig, "w0", 0) == 10
        assert self.limit(rig, "w1", 0) == 10
        clock = rig.service.clock("w0", 0, 10)
        assert (clock.limit, clock.slowest, clock.job) == (10, 0, "running")
        assert clock.poll > 0
        assert self.limit(rig, "w1", 4) == 14
        status = rig.service.status()
        assert [(w.clock, w.lead) for w in status.workers] == [(10, 6), (4, 0)]
        assert status.max_lead == 10
        assert status.mode == "bounded"

    def test_between_two_tasks_it_keeps_its_place(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name in tasks:
            self.limit(rig, name, 0)
        rig.finish_task("w1", tasks["w1"])
        assert self.limit(rig, "w0", 10) == 10
        rig.task("w1")
        assert self.limit(rig, "w0", 10) == 10

    @pytest.mark.parametrize("how", ["lost", "silent", "left", "released", "expired"])
    def test_who_does_not_train_any_more_is_not_waited_for(self, rig, how):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name in tasks:
            self.limit(rig, name, 0)
        assert self.limit(rig, "w0", 10) == 10
        if how == "lost":
            rig.service.fail("w1", "killed", exit_code=-9, again=True)
        elif how == "silent":
            rig.pass_time(11, "s0", "w0")
        elif how == "left":
            rig.service.heartbeat("w1", "exited")
        elif how == "released":
            rig.service.release("w1")
        else:
            rig.clock.advance(119)
            rig.service.progress("w0", tasks["w0"].id, 5, 10, 1.0)
            rig.pass_time(2, "s0", "w0", "w1")
        assert self.limit(rig, "w0", 10) == 20

    def test_who_has_to_wait_is_not_waited_for(self, tmp_path):
        rig = Rig(tmp_path, mode=self.MODE, data={"task_rows": 50})
        rig.assemble()
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name in tasks:
            self.limit(rig, name, 0)
        rig.finish_task("w1", tasks["w1"])
        assert self.limit(rig, "w0", 10) == 10
        assert rig.service.lease("w1").kind == "wait"
        assert self.limit(rig, "w0", 10) == 20

    def test_who_waits_for_a_slower_one_keeps_its_task(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        self.limit(rig, "w0", 0)
        for step in range(10):  # one every 50 seconds
            rig.service.progress("w1", tasks["w1"].id, step, step, 1.0)
            self.limit(rig, "w1", step)
            for _ in range(50):
                self.limit(rig, "w0", 10)
                rig.pass_time(1, "s0", "w0", "w1")
        assert "lease-expired" not in rig.kinds()
        rig.finish_task("w0", tasks["w0"])

    def test_who_is_waited_for_and_makes_no_step_loses_its_task(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name, task in tasks.items():
            self.limit(rig, name, 0)
            rig.service.progress(name, task.id, 5, 1, 1.0)
        for _ in range(61):
            self.limit(rig, "w1", 0)
            self.limit(rig, "w0", 10)
            rig.pass_time(1, "s0", "w0", "w1")
        expired = [e.who for e in rig.service.events().events if e.kind == "lease-expired"]
        assert expired == ["worker 1"]
        assert self.limit(rig, "w0", 10) == 20

    def test_without_a_task_it_does_not_enter(self, rig):
        rig.task("w0")
        assert self.limit(rig, "w0", 0) == 10
        assert self.limit(rig, "w1", 0) == 10
        assert self.limit(rig, "w0", 10) == 20

    def test_a_restarted_coordinator_begins_level(self, rig):
        for name in ("w0", "w1"):
            rig.task(name)
        self.limit(rig, "w0", 30)
        self.limit(rig, "w1", 20)
        rig.restart()
        assert self.limit(rig, "w0", 30) == 40
        assert self.limit(rig, "w1", 20) == 30
        assert self.limit(rig, "w0", 31) == 40

    def test_an_epoch_of_another_mode_has_no_clocks(self, tmp_path):
        rig = Rig(tmp_path)
        rig.assemble()
        with pytest.raises(UserError, match="epoch 0 of this job is not of mode bounded"):
            rig.service.clock("w0", 0, 1)

    def test_what_workers_waited_is_shown(self, rig):
        task = rig.task("w0")
        rig.service.progress("w0", task.id, 5, 1, 1.0, {"waited": 2.5})
        assert rig.service.status().workers[0].waited == 2.5
