"""Mode sync: every worker makes the same number of steps, and who stops the others is named."""

import math

import pytest
from coordinator_rig import Rig, finish, work
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER, UserError
from fleetps.coordinator.messages import UNREACHABLE, Slice
from fleetps.coordinator.tasks import cut_groups


def rows_of(part):
    return {(s.shard, s.start + row) for s in part.slices for row in range(s.rows)}


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    task_rows=st.integers(1, 50),
    workers=st.integers(1, 5),
    batch=st.integers(1, 12),
    threads=st.integers(1, 3),
)
def test_all_workers_make_the_same_steps_and_every_row_is_in_one_part(
    sizes, task_rows, workers, batch, threads
):
    shards = [Slice(shard=f"s{i}", start=0, rows=rows) for i, rows in enumerate(sizes)]
    total = sum(sizes)
    if total < workers:
        return
    groups = cut_groups(shards, task_rows, threads, workers, batch)
    seen = [row for group in groups for part in group for row in rows_of(part)]
    assert len(seen) == len(set(seen)) == total
    for group in groups:
        assert len(group) == workers
        assert len({part.rows + part.pad for part in group}) == 1
        assert all(part.pad in (0, 1) and part.rows > 0 for part in group)
    for group in groups[:-1]:
        assert all(part.rows % batch == 0 and part.pad == 0 for part in group)
        assert abs(group[0].rows - task_rows) < max(batch, task_rows)


def test_the_parts_of_a_step_lie_side_by_side():
    """With one batch per task, the rows of a step of all workers are the next ones of the data, so
    that any number of workers goes through the same rows in the same steps."""
    groups = cut_groups([Slice(shard="a", start=0, rows=100)], 5, 1, 4, 5)
    first = [(p.slices[0].start, p.rows) for p in groups[0]]
    assert first == [(0, 5), (5, 5), (10, 5), (15, 5)]
    assert len(groups) == 5


SYNC = {
    "splits": {"train": [70, 33], "test": [20]},
    "data": {"task_rows": 10, "batch_size": 5},
    "mode": "sync",
}


@pytest.fixture
def rig(tmp_path):
    """What would begin a new generation is told here in one sentence."""
    rig = Rig(tmp_path, job={"epochs": 2}, cluster={"generations": 0}, **SYNC)
    rig.assemble()
    return rig


def test_each_worker_gets_its_parts_in_the_same_order(rig):
    done = {"w0": [], "w1": []}
    for task, name in _work(rig, "w0", "w1"):
        done[name].append(task)
    trained = {name: [t for t in tasks if t.training] for name, tasks in done.items()}
    assert len(trained["w0"]) == len(trained["w1"]) == 10
    for one, other in zip(trained["w0"], trained["w1"], strict=True):
        assert one.epoch == other.epoch
        assert one.rows_before == other.rows_before
        assert one.rows + one.pad == other.rows + other.pad
    assert sum(task.rows for tasks in trained.values() for task in tasks) == 2 * 103
    first = [task for task in trained["w0"] if task.epoch == 0]
    steps = [math.ceil((task.rows + task.pad) / 5) for task in first]
    assert sum(steps) == 11  # 52 rows of each worker in batches of 5
    starts = [task.rows_before for task in trained["w0"]]
    assert starts == sorted(starts)
    assert next(task.rows_before for task in trained["w0"] if task.epoch == 1) == 103
    rig.check_accounting()


def _work(rig, *names):
    """(task, who did it) until all are told to finish."""
    waiting = list(names)
    while waiting:
        for name in list(waiting):
            lease = rig.service.lease(name)
            if lease.kind == "task":
                assert finish(rig.service, name, lease.task)
                yield lease.task, name
            elif lease.kind == "flush":
                rig.service.arrive(name, lease.name)
            elif lease.kind == "finish":
                waiting.remove(name)


def test_a_worker_too_many_waits_until_everybody_may_evaluate(rig):
    rig.register("worker", "late")
    assert rig.service.lease("late").kind == "wait"
    seen = {name for task, name in _work(rig, "w0", "w1", "late") if task.training}
    assert seen == {"w0", "w1"}


def test_one_worker_alone_has_no_group(tmp_path):
    rig = Rig(tmp_path, cluster={"workers": 1}, **SYNC)
    rig.assemble()
    task = rig.task("w0")
    rig.service.progress("w0", task.id, 5, 1, 1.0)
    assert rig.service.failed("w0", task.id, "once").accepted
    assert rig.task("w0").id == task.id
    # But it alone has the dense parameters.
    state = rig.service.fail("w0", "killed", exit_code=-9, again=True)
    assert (state.job, state.generation) == ("running", 1)


def test_modes_change_between_epochs(tmp_path):
    schedule = [{"mode": name, "epochs": 1} for name in ("async", "sync", "async")]
    rig = Rig(tmp_path, job={"epochs": 3}, **{**SYNC, "mode": schedule})
    rig.assemble()
    tasks = [task for task in work(rig.service, "w0", "w1") if task.training]
    befores = {epoch: [t.rows_before for t in tasks if t.epoch == epoch] for epoch in range(3)}
    assert [min(befores[epoch]) for epoch in range(3)] == [0, 103, 206]
    assert len(set(befores[1])) == len(befores[1]) / 2
    assert len(set(befores[2])) == len(befores[2])


def test_fewer_rows_than_workers_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"has 1 rows for 2 workers.*lower cluster\.workers"):
        Rig(tmp_path, splits={"train": [1], "test": [20]}, mode="sync")


class TestWhoIsToBlame:
    def test_the_one_that_has_been_silent(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name, task in tasks.items():
            rig.service.progress(name, task.id, 5, 1, 1.0)
        for _ in range(61):
            rig.service.progress("w0", tasks["w0"].id, 5, 1, 1.0)
            rig.pass_time(1, "s0", "w0", "w1")
        state = rig.state()
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert state.reason.startswith("worker 1: was silent for 60 s and makes no step")
        assert "in mode sync the other workers wait for it" in state.reason

    def test_the_one_that_can_not_reach_a_server(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for _ in range(121):
            rig.service.progress("w0", tasks["w0"].id, 0, 0, 0.0)
            rig.service.progress("w1", tasks["w1"].id, 0, 0, 0.0, {UNREACHABLE: 0})
            rig.pass_time(1, "s0", "w0", "w1")
        assert rig.state().reason.startswith("worker 1: can't reach server 0 (10.0.0.2:s0); in ")

    def test_the_one_that_never_said_anything(self, rig):
        task = rig.task("w0")
        for _ in range(121):
            rig.service.progress("w0", task.id, 0, 0, 0.0)
            rig.pass_time(1, "s0", "w0", "w1")
        assert rig.state().reason.startswith("worker 1: has reported nothing")

    def test_otherwise_the_one_with_the_fewest_rows(self, rig):
        rig.finish_task("w0", rig.task("w0"))
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        rig.service.progress("w1", tasks["w1"].id, 5, 1, 1.0)
        for _ in range(121):
            rig.service.progress("w0", tasks["w0"].id, 0, 0, 0.0)
            rig.service.progress("w1", tasks["w1"].id, 5, 1, 1.0)
            rig.pass_time(1, "s0", "w0", "w1")
        assert rig.state().reason.startswith(
            "worker 1: makes no step and has the fewest rows of the epoch (5)"
        )

    def test_a_worker_that_is_not_there(self, tmp_path):
        schedule = [{"mode": name, "epochs": 1} for name in ("async", "sync")]
        rig = Rig(tmp_path, job={"epochs": 2}, **{**SYNC, "mode": schedule})
        rig.assemble()
        rig.service.fail("w1", "killed", exit_code=-9)
        while (lease := rig.service.lease("w0")).kind != "task" or lease.task.epoch == 0:
            if lease.kind == "task":
                assert finish(rig.service, "w0", lease.task)
            elif lease.kind == "flush":
                rig.service.arrive("w0", lease.name)
        state = rig.pass_time(121, "s0", "w0")
        assert "worker 1 did not come for an epoch of mode sync within 120 s" in state.reason


@pytest.mark.parametrize("again", [True, False])
def test_a_worker_that_dies_ends_the_job(rig, again):
    rig.task("w0")
    rig.task("w1")
    state = rig.service.fail("w1", "killed", ["last"], -9, again=again)
    assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
    assert state.reason == (
        "worker 1: killed; in mode sync the other workers can't go on without it"
    )
    assert rig.service.status().failure.log_tail == ("last",)


def test_a_silent_or_leaving_worker_ends_the_job(rig, tmp_path):
    rig.task("w1")
    assert rig.pass_time(11, "s0", "w0").reason.startswith("worker 1: not heard of for")
    other = Rig(tmp_path / "other", cluster={"generations": 0}, **SYNC)
    other.assemble()
    assert other.service.heartbeat("w1", "exited").reason.startswith("worker 1: left before")


def test_who_is_in_no_group_may_die(rig):
    rig.register("worker", "late")
    assert rig.service.fail("late", "killed", exit_code=-9).job == "running"


def test_rows_that_cant_be_read_are_tried_again_before_the_first_step(rig):
    task = rig.task("w0")
    for _ in range(2):
        assert rig.service.failed("w0", task.id, "no such file").job == "running"
        assert rig.task("w0").id == task.id
    state = rig.service.failed("w0", task.id, "no such file")
    assert (state.job, state.exit_code) == ("failed", EXIT_USER)


def test_a_part_that_was_begun_cant_be_repeated(rig):
    task = rig.task("w0")
    rig.service.progress("w0", task.id, 5, 1, 1.0)
    state = rig.service.failed("w0", task.id, "cut short")
    assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
    assert "could not be handled by worker 0: cut short; in mode sync" in state.reason


def test_a_part_with_too_few_rows_ends_the_job(rig):
    task = rig.task("w0")
    answer = rig.service.done("w0", task.id, task.rows - 1, 2, 1.0)
    assert (answer.accepted, answer.job) == (False, "failed")
