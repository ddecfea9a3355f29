"""Checkpoints: when they are taken, in which steps, and what happens when one can't be."""

import pytest
from coordinator_rig import Rig, save

from fleet_config.errors import EXIT_TRY_AGAIN, TryAgain
from fleetps.checkpoint.store import open_checkpoint


def rig_with(tmp_path, every, **sections):
    rig = Rig(tmp_path, checkpoint={"every": {"epochs": None, **every}}, **sections)
    rig.assemble()
    return rig


def saved(rig):
    return [text.split(":")[0] for text in rig.texts("checkpoint")]


def train(rig, tasks, name="w0"):
    for _ in range(tasks):
        rig.finish_task(name, rig.task(name))


class TestTheSteps:
    @pytest.fixture
    def rig(self, tmp_path):
        rig = rig_with(tmp_path, {"tasks": 1})
        yield rig
        rig.check_accounting()

    def test_who_has_a_task_does_it_then_all_flush_then_one_saves(self, rig):
        held = rig.task("w1")
        train(rig, 1)
        flush = rig.service.lease("w0")
        assert (flush.kind, flush.name) == ("flush", "checkpoint-1")
        assert flush.save == str(rig.job.run_dir / "checkpoints" / ".partial-000001")
        rig.service.arrive("w0", flush.name)
        assert rig.service.lease("w0").kind == "wait"
        assert rig.service.lease("w1").kind == "wait"  # instead of a task to load ahead
        rig.finish_task("w1", held)
        assert rig.service.lease("w0").kind == "wait"
        assert rig.service.lease("w1") == flush
        assert rig.state().job == "running"
        rig.service.arrive("w1", flush.name)

        chore = rig.service.lease("w0")
        assert (chore.kind, chore.action, chore.number) == ("chore", "save", 1)
        assert chore.directory == flush.save
        assert rig.service.lease("w1").kind == "wait"
        name = save(rig.job, rig.dataset, chore)
        rig.service.arrive("w0", chore.name, name)
        assert rig.service.lease("w1").kind == "task"
        assert saved(rig) == [name]
        assert rig.service.rendezvous("w1").restore == str(rig.job.run_dir / "checkpoints" / name)

    def test_its_progress_is_what_was_done(self, rig):
        train(rig, 1)
        rig.step("w0")
        rig.step("w0")
        progress = open_checkpoint(
            rig.job.run_dir / "checkpoints" / saved(rig)[0]
        ).manifest.progress
        done = sum(rows for ranges in progress["done"].values() for _, rows in ranges)
        assert (done, progress["rows"], progress["epoch"]) == (25, 25, 0)
        assert progress["goes_on"] == "train"
        assert progress["loss_sum"] == pytest.approx(25 * 0.7)
        assert set(progress["done"]) <= {"train-00000.txt", "train-00001.txt"}

    def test_the_pause_is_measured(self, rig):
        held = rig.task("w1")
        train(rig, 1)
        rig.pass_time(3, "s0", "w0", "w1")
        rig.finish_task("w1", held)
        rig.step("w0")
        rig.pass_time(2, "s0", "w0", "w1")
        assert rig.service.status().phase == "checkpoint"
        assert rig.service.status().checkpoint.pending
        rig.step("w1")
        rig.step("w0")
        rig.pass_time(7, "s0", "w0", "w1")
        status = rig.service.status().checkpoint
        assert (status.number, status.name, status.rows) == (1, saved(rig)[0], 50)
        assert (status.drain, status.pause, status.age) == pytest.approx((3, 2, 7))
        assert not status.pending

    def test_a_worker_that_dies_is_not_waited_for(self, rig):
        rig.task("w1")
        train(rig, 1)
        rig.step("w0")
        rig.service.fail("w1", "killed", exit_code=-9, again=True)
        rig.step("w0")
        assert len(saved(rig)) == 1
        assert rig.service.status().checkpoint.rows == 25

    def test_when_the_one_that_saves_dies_another_one_is_taken(self, rig):
        held = rig.task("w0")
        rig.finish_task("w1", rig.task("w1"))
        rig.finish_task("w0", held)
        rig.step("w1")
        rig.step("w0")
        assert rig.service.lease("w0").action == "save"
        rig.service.fail("w0", "killed", exit_code=-9, again=True)
        assert rig.kinds()[-1] == "checkpoint-lost"
        flush = rig.service.lease("w1")
        assert (flush.kind, flush.name) == ("flush", "checkpoint-2")
        rig.step("w1")
        rig.step("w1")
        assert saved(rig)[0].startswith("000002-")
        assert rig.service.status().checkpoint.failures == 0

    def test_a_late_worker_takes_part(self, rig):
        train(rig, 1)
        rig.register("worker", "late")
        assert rig.service.lease("late").kind == "flush"

    def test_a_restarted_coordinator_goes_on_with_it(self, rig):
        train(rig, 1)
        for _ in range(2):
            rig.restart()
            rig.step("w0")
        rig.restart()
        assert len(saved(rig)) == 1
        assert rig.service.lease("w0").kind == "task"

    def test_who_does_not_flush_or_save_is_named(self, rig, tmp_path):
        rig.task("w1")
        train(rig, 1)
        rig.service.fail("w1", "killed", exit_code=-9, again=True)
        assert rig.pass_time(119, "s0", "w0", "w1").job == "running"
        assert "worker 0 did not finish pushing" in rig.pass_time(2, "s0", "w0", "w1").reason
        other = rig_with(tmp_path / "other", {"tasks": 1}, cluster={"deadlines": {"checkpoint": 9}})
        train(other, 1)
        other.step("w0")
        assert "worker 0 saved no checkpoint within 9 s" in other.pass_time(10, "s0", "w0").reason


class TestWhen:
    def test_every_so_many_rows(self, tmp_path):
        rig = rig_with(tmp_path, {"rows": 40}, job={"epochs": 2})
        rig.work("w0")
        assert [r.split(" rows")[0].split(": ")[1] for r in rig.texts("checkpoint")] == [
            "50", "100", "150", "200",
        ]  # fmt: skip

    def test_at_the_end_of_epochs_after_the_tables_were_shrunk(self, tmp_path):
        rig = rig_with(
            tmp_path,
            {"epochs": 2},
            job={"epochs": 3},
            tables={"embedding": {"eviction": {"every_epochs": 2}}},
        )
        rig.work("w0", "w1")
        assert len(saved(rig)) == 2  # after the second epoch, and the last
        first = open_checkpoint(rig.job.run_dir / "checkpoints" / saved(rig)[0]).manifest.progress
        assert (first["epoch"], first["goes_on"], first["rows"]) == (1, "evaluate", 200)
        assert [result["epoch"] for result in first["history"]] == [0]
        rig.check_accounting()

    def test_after_so_many_minutes(self, tmp_path):
        rig = rig_with(tmp_path, {"minutes": 0.5})
        train(rig, 1)
        assert rig.service.lease("w1").kind == "task"
        rig.pass_time(31, "s0", "w0", "w1")
        assert rig.service.status().phase == "checkpoint"

    def test_on_request(self, tmp_path):
        rig = rig_with(tmp_path, {})
        train(rig, 1)
        assert rig.service.checkpoint("before the weekend").job == "running"
        assert rig.service.status().checkpoint.pending
        rig.step("w0")
        rig.step("w0")
        assert rig.texts("checkpoint")[0].endswith("(before the weekend)")
        assert rig.service.lease("w0").kind == "task"

    def test_not_when_nothing_is_left_to_train(self, tmp_path):
        rig = rig_with(tmp_path, {})
        rig.work("w0", "w1")
        with pytest.raises(TryAgain, match="everything is trained"):
            rig.service.checkpoint("now")
        for name in ("w0", "w1"):
            rig.service.heartbeat(name, "exited")
        with pytest.raises(TryAgain, match="the job is done"):
            rig.service.checkpoint("now")

    def test_one_at_the_end_of_an_epoch_is_enough(self, tmp_path):
        rig = rig_with(tmp_path, {"epochs": 1, "tasks": 4})
        rig.work("w0")
        assert len(saved(rig)) == 1


class TestFailures:
    @pytest.fixture
    def rig(self, tmp_path):
        rig = rig_with(tmp_path, {"tasks": 1}, job={"epochs": 3})
        rig.service.fail("w1", "not needed here")
        return rig

    def fail_to_save(self, rig):
        """Goes on until a checkpoint is to be saved."""
        while (chore := rig.service.lease("w0")).kind != "chore":
            if chore.kind == "task":
                rig.finish_task("w0", chore.task)
            else:
                rig.service.arrive("w0", chore.name)
        rig.service.arrive("w0", chore.name, "error: the disk is full")

    def test_the_job_goes_on_until_the_third_in_a_row(self, rig):
        self.fail_to_save(rig)
        assert rig.texts("checkpoint-failed") == ["checkpoint 1: the disk is full"]
        assert rig.service.status().checkpoint.reason == "the disk is full"
        self.fail_to_save(rig)
        train(rig, 1)
        rig.step("w0")
        rig.step("w0")
        assert rig.service.status().checkpoint.failures == 0
        train(rig, 1)
        rig.step("w0")  # the end of the epoch
        for _ in range(3):
            self.fail_to_save(rig)
        state = rig.state()
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert state.reason == (
            "coordinator: 3 checkpoints failed in a row; the last: the disk is full"
        )

    def test_a_directory_that_cant_be_written(self, tmp_path):
        rig = rig_with(tmp_path, {"tasks": 1})
        (rig.job.run_dir / "checkpoints").write_text("no directory")
        train(rig, 1)
        assert "can't be read: Not a directory" in rig.texts("checkpoint-failed")[0]
        assert rig.service.lease("w0").kind == "task"


class TestInSync:
    @pytest.fixture
    def rig(self, tmp_path):
        return rig_with(
            tmp_path, {"tasks": 2}, mode="sync", data={"task_rows": 10, "batch_size": 5}
        )

    def test_groups_that_were_begun_are_done_first(self, rig):
        first, ahead = rig.task("w0"), rig.task("w0")
        rig.finish_task("w1", rig.task("w1"))
        rig.finish_task("w0", first)
        assert rig.service.status().phase == "checkpoint"
        assert rig.service.lease("w0").kind == "wait"
        second = rig.task("w1")  # worker 0 has begun this group and would wait for ever
        assert second.rows_before == ahead.rows_before
        rig.finish_task("w0", ahead)
        assert rig.service.lease("w0").kind == "flush"
        assert rig.service.lease("w1").kind == "wait"
        rig.finish_task("w1", second)
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        assert rig.service.status().checkpoint.rows == 40
        rig.check_accounting()
