"""A worker leaves in the middle of a task: what is done counts, the rest becomes another task."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest
from coordinator_rig import Rig, finish
from hypothesis import given
from hypothesis import strategies as st

from fleet_config.errors import EXIT_TRY_AGAIN
from fleetps.coordinator.messages import INITIALISED, Slice, Task
from fleetps.coordinator.splits import done_of, seed_of, split, whole_and_open
from fleetps.data import pipe


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, splits={"train": [70, 30], "test": [20]})
    rig.assemble()
    yield rig
    rig.check_accounting()


def rows_of(task: Task, tmp_path) -> list[bytes]:
    """What the pipe writes for a task, in this order."""
    sink = io.BytesIO()
    for index, piece in enumerate(task.slices):
        seed = seed_of(piece, index, task.shuffle_seed)
        report = str(tmp_path / "report")
        job = {**piece.model_dump(), "shuffle_seed": seed, "report": report}
        assert pipe.run(io.BytesIO(json.dumps(job).encode()), sink) == 0
    return sink.getvalue().splitlines()


def number_rows(rig) -> set[bytes]:
    """Make every row of the data set another one."""
    lines = []
    for shard in rig.dataset.split("train").shards:
        mine = [b"%d" % row for row in range(len(lines), len(lines) + shard.rows)]
        rig.dataset.shard_path(shard).write_bytes(b"".join(row + b"\n" for row in mine))
        lines += mine
    return set(lines)


def leave(rig, name, task, rows):
    answer = rig.service.part_done(name, task.id, rows, 1, rows * 0.7)
    rig.service.release(name, begun=False)
    rig.service.heartbeat(name, "exited")
    return answer


class TestRows:
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize("task_rows", [25, 100])
    def test_each_is_trained_once(self, tmp_path, shuffle, task_rows):
        data = {"task_rows": task_rows, "shuffle": shuffle}
        rig = Rig(tmp_path, data=data, splits={"train": [70, 30], "test": [20]})
        expected = number_rows(rig)
        rig.assemble()
        trained: list[bytes] = []
        for number, done in enumerate((7, 1, 11, 3)):
            name = f"w{number}"
            rig.register("worker", name)
            task = rig.task(name)
            trained += rows_of(task, tmp_path)[:done]
            assert leave(rig, name, task, done).accepted
            rig.check_accounting()
        rig.register("worker", "last")
        while (lease := rig.service.lease("last")).kind == "task" and lease.task.training:
            trained += rows_of(lease.task, tmp_path)
            rig.finish_task("last", lease.task)
        assert Counter(trained) == Counter(expected)
        accounting = rig.service.status().accounting
        assert accounting.repeated == 0
        assert accounting.returned > 0

    @given(
        sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
        cuts=st.lists(st.integers(0, 9), max_size=4),
        seed=st.none() | st.integers(0, 9),
    )
    def test_what_is_done_and_what_is_not(self, sizes, cuts, seed):
        pieces = [Slice(shard=f"s{i}", start=i, rows=rows) for i, rows in enumerate(sizes)]
        done: list[Slice] = []
        rest = pieces
        for rows in cuts:
            first, rest = split(rest, seed, rows)
            assert sum(p.count for p in first) + sum(p.count for p in rest) == sum(sizes) - sum(
                p.count for p in done
            )
            done += first
        whole, begun = whole_and_open(done)
        kept = sum(p.count for p in [*whole, *map(done_of, begun)])
        assert kept == sum(p.count for p in done) == min(sum(cuts), sum(sizes))
        assert len(begun) <= 1
        assert all(piece in rest for piece in begun)


class TestReports:
    def test_the_rest_is_the_next_task(self, rig):
        task = rig.task("w0")
        assert leave(rig, "w0", task, 10).accepted
        rest = rig.task("w1")
        assert rest.rows == 15
        assert rest.rows_before == task.rows_before + 10
        assert [piece.skip for piece in rest.slices] == [10]

    def test_it_may_be_said_twice(self, rig):
        task = rig.task("w0")
        for _ in range(2):
            assert rig.service.part_done("w0", task.id, 10, 1, 7.0).accepted
        assert rig.service.status().accounting.done == 10

    def test_all_of_a_task(self, rig):
        task = rig.task("w0")
        assert leave(rig, "w0", task, 25).accepted
        assert rig.service.status().accounting.done == 25

    @pytest.mark.parametrize("rows", [0, 26])
    def test_nothing_and_too_much(self, rig, rows):
        task = rig.task("w0")
        assert not leave(rig, "w0", task, rows).accepted
        assert rig.task("w1").id == task.id

    def test_a_part_of_a_group_is_not_split(self, tmp_path):
        rig = Rig(tmp_path, mode="sync", cluster={"generations": 0})
        rig.assemble()
        assert not rig.service.part_done("w0", rig.task("w0").id, 10, 1, 7.0).accepted

    def test_what_may_have_been_begun_counts_as_repeated(self, rig):
        task = rig.task("w0")
        rig.service.release("w0")
        assert rig.task("w1").id == task.id
        assert rig.service.status().accounting.repeated == 25


class TestThoseWhoStay:
    def test_they_hear_that_it_left(self, rig):
        rig.task("w0")
        rig.service.heartbeat("w0", "exited")
        assert rig.texts("worker-left") == ["has left; it held 1 tasks, and the other goes on"]

    def test_nobody_stays(self, rig):
        for name in ("w0", "w1"):
            leave(rig, name, rig.task(name), 5)
        assert rig.texts("worker-left")[1] == "has left; the job waits for another worker"
        assert rig.pass_time(59, "s0").job == "running"
        state = rig.pass_time(2, "s0")
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert state.reason == (
            "coordinator: all workers have left, and no other came within 60 s "
            "(cluster.deadlines.rendezvous)"
        )

    def test_somebody_comes_in_time(self, rig):
        for name in ("w0", "w1"):
            leave(rig, name, rig.task(name), 5)
        rig.pass_time(59, "s0")
        rig.register("worker", "w2")
        assert rig.pass_time(59, "s0", "w2").job == "running"
        assert rig.work("w2")


class TestCheckpoints:
    @pytest.fixture
    def rig(self, tmp_path):
        rig = Rig(
            tmp_path,
            job={"epochs": 2},
            cluster={"workers": 1},
            checkpoint={"every": {"epochs": None}},
        )
        self.expected = number_rows(rig)
        rig.assemble()
        yield rig
        rig.check_accounting()

    def save(self, rig, worker):
        """Take a checkpoint while this is the only worker."""
        rig.service.checkpoint("now")
        for _ in range(2):
            rig.step(worker)
        assert rig.texts("checkpoint")

    def begin(self, rig, tmp_path):
        """9 rows are trained, then a checkpoint is taken; returns these rows."""
        task = rig.task("w0")
        trained = rows_of(task, tmp_path)[:9]
        leave(rig, "w0", task, 9)
        rig.register("worker", "w1")
        self.save(rig, "w1")
        return trained

    def train(self, rig, worker, tmp_path):
        """The rows of the rest of the epoch."""
        trained = []
        while (lease := rig.service.lease(worker)).kind == "task" and lease.task.training:
            trained += rows_of(lease.task, tmp_path)
            assert finish(rig.service, worker, lease.task)
        return trained

    def test_another_generation(self, rig, tmp_path):
        trained = self.begin(rig, tmp_path)
        lost = rig.task("w1")
        assert lost.rows == 16
        rig.finish_task("w1", lost)
        rig.service.fail("s0", "killed", None, -9, again=True)
        rig.service.tick()
        assert "16 rows are trained again" in rig.texts("generation")[0]
        rig.begin_again("s0", "w1")
        rig.service.arrive("w1", INITIALISED)
        rows = trained + self.train(rig, "w1", tmp_path)
        assert Counter(rows) == Counter(self.expected)

    def test_a_generation_from_before_it_left(self, rig, tmp_path):
        leave(rig, "w0", rig.task("w0"), 9)
        rig.register("worker", "w1")
        rig.service.fail("s0", "killed", None, -9, again=True)
        rig.service.tick()
        rig.begin_again("s0", "w1")
        assert Counter(self.train(rig, "w1", tmp_path)) == Counter(self.expected)

    def test_another_run_in_a_fresh_state(self, rig, tmp_path):
        trained = self.begin(rig, tmp_path)
        rig.service.close()
        (rig.job.run_dir / "coordinator.sqlite").unlink()
        rig.service = rig.start()
        rig.assemble()
        rig.service.arrive("w0", INITIALISED)
        assert rig.service.status().rows_done == 9
        rows = trained + self.train(rig, "w0", tmp_path)
        assert Counter(rows) == Counter(self.expected)
        accounting = rig.service.status().accounting
        assert accounting.done == 100
        assert accounting.repeated == 0
