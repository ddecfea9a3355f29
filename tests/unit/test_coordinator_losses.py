"""Workers that die: the others go on, nothing is lost, and nobody waits for the dead."""

import pytest
from coordinator_rig import Rig, step, work

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    yield rig
    rig.check_accounting()


def lost(rig):
    return [(e.who, e.text) for e in rig.service.events().events if e.kind == "worker-lost"]


@pytest.mark.parametrize("code", [None, -9, -11, 1, 75, 143])
def test_the_others_take_over_what_it_held(rig, code):
    task = rig.task("w1")
    assert rig.service.fail("w1", "it ended", exit_code=code).job == "running"
    assert lost(rig) == [("worker 1", "it ended; the job goes on without it")]
    assert rig.task("w0").id == task.id
    assert rig.service.lease("w1").kind == "stop"
    status = rig.service.status()
    assert (status.workers_lost, status.losses) == (
        1, ("worker 1: it ended; the job goes on without it",)
    )  # fmt: skip


def test_the_users_mistake_ends_the_job(rig):
    state = rig.service.fail("w1", "no such column", exit_code=2, again=True)
    assert (state.job, state.exit_code) == ("failed", EXIT_USER)


def test_a_silent_worker_is_lost(rig):
    task = rig.task("w0")
    assert rig.pass_time(11, "s0", "w1").job == "running"
    assert lost(rig)[0][0] == "worker 0"
    assert rig.task("w1").id == task.id
    assert rig.register("worker", "replacement") == 0


def test_one_that_was_only_cut_off_comes_back(rig):
    rig.pass_time(11, "s0", "w1")
    assert rig.service.lease("w0").kind == "stop"
    rig.service.fail("w0", "it was told that it had left", exit_code=75, again=True)
    assert rig.service.lease("w0").kind == "task"


def test_one_whose_end_nobody_could_report_is_noticed_when_it_registers(rig):
    """Its agent died while the coordinator was away, and whoever started it gave it its name."""
    task = rig.task("w0")
    assert rig.register("worker", "w0") == 0
    assert lost(rig) == [
        ("worker 0", "its agent had ended, and nobody could say so; it is started again")
    ]
    assert rig.register("worker", "w0") == 0  # the same call once more
    assert len(lost(rig)) == 1
    assert rig.task("w1").id == task.id


def test_but_not_to_a_place_that_another_one_has_taken(rig):
    rig.pass_time(11, "s0", "w1")
    assert rig.register("worker", "replacement") == 0
    rig.service.fail("w0", "it was told that it had left", exit_code=75, again=True)
    assert rig.service.lease("w0").kind == "stop"
    assert lost(rig)[1] == ("worker 0", "it was told that it had left; the job goes on without it")


def test_the_last_worker_ends_the_job_and_is_named(rig):
    rig.service.fail("w1", "it ended", exit_code=-9)
    state = rig.service.fail("w0", "it ended too", ["last line"], exit_code=-9)
    assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
    assert state.reason == "worker 0: it ended too; no other worker is left"
    assert rig.service.status().failure.log_tail == ("last line",)


def test_one_that_is_started_again_counts(rig):
    rig.service.fail("w1", "it ended", exit_code=-9)
    assert rig.service.fail("w0", "killed", exit_code=-9, again=True).job == "running"
    assert lost(rig)[1] == ("worker 0", "killed; it is started again")


def test_the_new_process_does_not_hold_what_the_old_one_held(rig):
    first, second = rig.task("w0"), rig.task("w0")
    rig.service.fail("w0", "killed", exit_code=-9, again=True)
    assert [rig.task("w0").id, rig.task("w0").id] == [first.id, second.id]
    assert rig.service.status().accounting.returned == 50


def test_it_keeps_its_rank_and_registers_again(rig):
    rig.service.fail("w0", "its agent was killed", exit_code=-9, again=True)
    assert rig.register("worker", "w0", rank=0) == 0
    assert rig.service.status().workers[0].state == "registered"


def test_a_dead_agent_that_comes_back_is_given_the_time_to(tmp_path):
    rig = Rig(tmp_path, cluster={"workers": 1, "heartbeat": 0.5})
    rig.assemble()
    rig.service.fail("w0", "its agent was killed", exit_code=-9, again=True)
    assert rig.pass_time(20, "s0").job == "running"
    rig.register("worker", "w0", rank=0)
    assert rig.pass_time(3, "s0").job == "failed"


def test_a_dead_agent_that_does_not_come_back_is_lost_in_the_end(rig):
    rig.service.fail("w1", "its agent was killed", exit_code=-9, again=True)
    rig.pass_time(61, "s0", "w0")
    assert "not heard of" in lost(rig)[1][1]


def test_a_dead_worker_has_nothing_to_flush(rig):
    tasks = [rig.task(name) for name in ("w0", "w0", "w1", "w1")]
    for name, task in zip(("w0", "w0", "w1", "w1"), tasks, strict=True):
        rig.finish_task(name, task)
    assert step(rig.service, "w0").kind == "flush"
    assert rig.service.lease("w0").kind == "wait"
    rig.service.fail("w1", "killed", exit_code=-9, again=True)
    assert not rig.task("w0").training


def test_a_replacement_that_comes_for_the_flush_takes_part_in_it(rig):
    for name in ("w0", "w0", "w1"):
        rig.finish_task(name, rig.task(name))
    task = rig.task("w1")
    rig.service.fail("w1", "killed", exit_code=-9, again=True)
    assert rig.task("w0").id == task.id
    rig.finish_task("w0", task)
    assert step(rig.service, "w1").kind == "flush"
    assert step(rig.service, "w0").kind == "flush"
    assert rig.service.lease("w1").kind in ("task", "wait")


def test_initial_values_once_sent_are_known_to_those_that_come_later(rig):
    rig.service.arrive("w0", "initialised")
    rig.service.fail("w0", "killed", exit_code=-9, again=True)
    assert rig.service.arrived("initialised").ranks == (0,)
    rig.service.fail("w0", "killed", exit_code=-9)
    rig.register("worker", "new", rank=0)
    assert rig.service.arrived("initialised").ranks == (0,)


def test_before_the_work_begins_a_replacement_is_waited_for(tmp_path):
    rig = Rig(tmp_path)
    rig.register("server", "s0")
    rig.register("worker", "w0")
    assert rig.service.fail("w0", "killed", exit_code=-9).job == "waiting"
    assert rig.register("worker", "again") == 0
    assert "worker 1 did not register" in rig.pass_time(61, "s0", "again").reason


def test_who_dies_when_all_is_done_keeps_nobody_waiting(rig):
    work(rig.service, "w0", "w1")
    rig.service.heartbeat("w0", "exited")
    rig.service.fail("w1", "crashed on its way out", exit_code=-11, again=True)
    assert rig.state().job == "done"


def test_losses_survive_a_restart_of_the_coordinator(rig):
    rig.service.fail("w1", "killed", exit_code=-9, again=True)
    rig.restart()
    status = rig.service.status()
    assert (status.workers_lost, len(status.losses)) == (1, 1)


class TestChores:
    EVICTION = {"embedding": {"eviction": {"every_epochs": 2}}}

    @pytest.fixture
    def rig(self, tmp_path):
        rig = Rig(tmp_path, job={"epochs": 4}, tables=self.EVICTION)
        rig.assemble()
        return rig

    def chore(self, rig):
        """Both train an epoch and flush; the lease of each after that."""
        for _ in range(4):
            rig.finish_task("w0", rig.task("w0"))
        for name in ("w1", "w0"):
            assert step(rig.service, name).kind == "flush"
        return rig.service.lease("w0"), rig.service.lease("w1")

    def evaluate(self, rig):
        assert not step(rig.service, "w0").task.training

    def test_one_worker_does_it_when_it_is_due(self, rig):
        lease, _ = self.chore(rig)
        assert not lease.task.training  # not after the first epoch
        rig.finish_task("w0", lease.task)
        lease, other = self.chore(rig)
        assert (lease.kind, lease.action, lease.epoch) == ("chore", "shrink", 1)
        assert other.kind == "wait"
        assert rig.service.lease("w0") == lease
        rig.service.arrive("w0", lease.name)
        self.evaluate(rig)

    def test_another_one_does_it_when_it_dies(self, rig):
        rig.finish_task("w0", self.chore(rig)[0].task)
        lease, _ = self.chore(rig)
        rig.service.fail("w0", "killed", exit_code=-9, again=True)
        assert rig.service.lease("w1") == lease
        assert rig.pass_time(119, "s0", "w0", "w1").job == "running"
        reason = rig.pass_time(2, "s0", "w0", "w1").reason
        assert "the tables were not shrunk by worker 1 within 120 s" in reason


def test_notes_are_left_for_the_others(rig):
    rig.service.arrive("w1", "group")
    rig.service.arrive("w0", "group", "127.0.0.1:5000")
    arrived = rig.service.arrived("group")
    assert (arrived.ranks, arrived.notes) == ((0, 1), {0: "127.0.0.1:5000"})
    rig.service.arrive("w0", "group", "127.0.0.1:6000")
    assert rig.service.arrived("group").notes == {0: "127.0.0.1:6000"}


def test_what_servers_hold_is_shown(rig):
    rig.service.heartbeat("s0", "serving", {"rows.embedding": 17.0})
    rig.service.heartbeat("s0", "serving")
    assert rig.service.status().servers[0].rows == {"embedding": 17}
