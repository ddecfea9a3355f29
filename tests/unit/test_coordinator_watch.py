"""Losses that are no numbers, slow workers, and jobs that stand still."""

import pytest
from coordinator_rig import Rig

from fleet_config.errors import EXIT_USER
from fleetps.coordinator.messages import INITIALISED, UNREACHABLE
from fleetps.coordinator.service import JobService

ALL = ("s0", "w0", "w1")


def make(root, **sections):
    rig = Rig(root, **sections)
    rig.assemble()
    return rig


def diverge(rig, name, task, loss="nan"):
    return rig.service.diverged(name, task.id, f"the loss became {loss} in task {task.id}")


def begin_again(rig):
    rig.service.tick()  # chooses the checkpoint
    rig.begin_again(*ALL)
    if rig.service.status().phase == "restore":
        rig.service.arrive("w0", INITIALISED)


def start_afresh(rig):
    """The state is lost, the checkpoints are there."""
    rig.service.close()
    for file in rig.job.run_dir.glob("coordinator.sqlite*"):
        file.unlink()
    rig.service = rig.start()
    rig.assemble()
    rig.service.arrive("w0", INITIALISED)


class TestDivergence:
    @pytest.fixture
    def rig(self, tmp_path):
        rig = make(
            tmp_path,
            job={"epochs": 2},
            watch={"on_nan": "skip_task", "most_skipped": 2},
            checkpoint={"every": {"epochs": 1, "tasks": 2}},
        )
        yield rig
        rig.check_accounting()

    def test_it_stops_the_job(self, tmp_path):
        rig = make(tmp_path)
        task = rig.task("w1")
        state = diverge(rig, "w1", task)
        assert (state.job, state.exit_code) == ("failed", EXIT_USER)
        assert state.reason == (
            f"worker 1: the loss became nan in task {task.id}: the training diverged; lower "
            "optimizer.learning_rate or the tables' learning_rate, or set optimizer.clip_norm, or "
            "look at these rows"
        )

    def test_without_servers_it_stops_the_job_too(self, tmp_path):
        rig = Rig(tmp_path, watch={"on_nan": "skip_task"})
        rig.service.close()
        service = JobService(rig.job, rig.dataset, local=True)
        service.register("worker", "w0", "localhost", 0, rig.job.digest())
        task = service.lease("w0").task
        state = service.diverged("w0", task.id, "the loss became nan")
        assert (state.job, state.exit_code) == ("failed", EXIT_USER)
        assert "without servers there is no checkpoint to go back to" in state.reason

    def test_the_task_is_left_out_and_the_others_are_trained(self, rig):
        for _ in range(2):
            rig.finish_task("w0", rig.task("w0"))
        rig.step("w0")
        rig.step("w0")  # a checkpoint with 50 rows
        bad, other = rig.task("w1"), rig.task("w0")
        rig.finish_task("w0", other)
        state = diverge(rig, "w1", bad)
        assert (state.job, state.generation) == ("running", 1)
        assert diverge(rig, "w1", bad).generation == 1  # its other thread
        begin_again(rig)
        assert (
            "; the task is skipped; generation 1 begins with checkpoint"
            in (rig.texts("generation")[0])
        )
        assert rig.texts("skipped") == [
            f"the loss became nan in task {bad.id}: its 25 rows are left out"
        ]
        first, second = [], []
        for task in rig.work("w0", "w1"):
            if task.training:
                (second if task.epoch else first).append(task)
        assert [task.id for task in first] == [other.id]  # the two of the checkpoint are done
        assert sum(task.rows for task in second) == 100  # in the next epoch it is tried again
        rows = rig.service.status().accounting
        assert (rows.total, rows.done, rows.skipped) == (240, 215, 25)
        assert rig.service.status().history[0].train_rows == 75

    def test_after_so_many_the_job_stops(self, rig):
        for generation in (1, 2):
            assert diverge(rig, "w0", rig.task("w0")).generation == generation
            begin_again(rig)
        state = diverge(rig, "w0", rig.task("w0"))
        assert (state.job, state.exit_code) == ("failed", EXIT_USER)
        assert "2 tasks have been skipped before (watch.most_skipped)" in state.reason

    def test_one_that_met_spoilt_parameters_is_not_to_blame(self, rig):
        bad, good = rig.task("w0"), rig.task("w1")
        diverge(rig, "w0", bad)
        assert diverge(rig, "w1", good).generation == 1
        assert len(rig.texts("skipped")) == 1

    def test_a_fresh_state_goes_on_without_it(self, rig):
        diverge(rig, "w0", rig.task("w0"))
        begin_again(rig)
        while rig.service.status().checkpoint.number < 1:
            rig.step("w0")
        start_afresh(rig)
        trained = [task for task in rig.work("w0", "w1") if task.training and not task.epoch]
        rows = rig.service.status().accounting
        assert (rows.total, rows.done, rows.skipped) == (240, 215, 25)
        assert sum(task.rows for task in trained) == 25  # 50 of 100 are in the checkpoint

    def test_a_fresh_state_at_the_epochs_end_too(self, tmp_path):
        rig = make(
            tmp_path,
            job={"epochs": 2},
            watch={"on_nan": "skip_task"},
            checkpoint={"every": {"epochs": 1}},
        )
        diverge(rig, "w0", rig.task("w0"))
        begin_again(rig)
        while rig.service.status().checkpoint.number < 1:
            for name in ("w0", "w1"):
                rig.step(name)
        start_afresh(rig)
        tasks = rig.work("w0", "w1")
        assert {task.epoch for task in tasks if task.training} == {1}
        rows = rig.service.status().accounting
        assert (rows.total, rows.done, rows.skipped, rows.waiting) == (240, 215, 25, 0)
        first, second = rig.service.status().history
        assert (first.train_rows, second.train_rows) == (75, 100)
        assert first.train_loss == pytest.approx(0.7)
        rig.check_accounting()

    def test_in_sync_the_whole_group_is_left_out(self, tmp_path):
        rig = make(
            tmp_path,
            mode="sync",
            data={"task_rows": 10, "batch_size": 5},
            watch={"on_nan": "skip_task"},
            checkpoint={"every": {"epochs": None, "tasks": 4}},
        )
        first = {name: rig.task(name) for name in ("w0", "w1")}
        assert first["w0"].rows_before == first["w1"].rows_before == 0
        rig.finish_task("w0", first["w0"])
        diverge(rig, "w1", first["w1"])
        begin_again(rig)
        tasks = [task for task in rig.work("w0", "w1") if task.training]
        assert sorted(task.rows_before for task in tasks) == [20, 20, 40, 40, 60, 60, 80, 80]
        rows = rig.service.status().accounting
        assert (rows.total, rows.done, rows.skipped) == (120, 100, 20)
        rig.check_accounting()

    def test_with_tasks_cut_for_more_workers(self, tmp_path):
        rig = make(
            tmp_path,
            mode="sync",
            data={"task_rows": 10, "batch_size": 5},
            watch={"on_nan": "skip_task"},
            checkpoint={"every": {"epochs": None, "tasks": 4}},
        )
        diverge(rig, "w0", rig.task("w0"))
        begin_again(rig)
        while rig.service.status().checkpoint.number < 1:
            for name in ("w0", "w1"):
                rig.step(name)
        trained = rig.service.status().checkpoint.rows - 20
        rig.job = rig.job.model_copy(
            update={"cluster": rig.job.cluster.model_copy(update={"workers": 3})}
        )
        start_afresh(rig)
        tasks = [task for task in rig.work("w0", "w1", "w2") if task.training]
        assert sum(task.rows for task in tasks) == 100 - 20 - trained
        assert min(task.rows_before for task in tasks) == 20 + trained
        rows = rig.service.status().accounting
        assert (rows.total, rows.done, rows.skipped) == (120, 100, 20)
        rig.check_accounting()


class TestStragglers:
    @pytest.fixture
    def rig(self, tmp_path):
        watch = {"straggler": {"times": 3, "seconds": 5}}
        rig = make(
            tmp_path,
            cluster={"workers": 3},
            watch=watch,
            data={"task_rows": 100_000},
            splits={"train": [1_000_000], "test": [20]},
        )
        self.tasks = {name: rig.task(name) for name in ("w0", "w1", "w2")}
        self.done = dict.fromkeys(self.tasks, (0, 0.0))
        return rig

    def run(self, rig, seconds, **steps):
        """Each worker makes steps of so many seconds."""
        for _ in range(seconds):
            for name, step in steps.items():
                count, spent = self.done[name]
                self.done[name] = count, spent = count + round(1 / step), spent + 1.0
                extra = {"steps": count, "step_seconds": spent, "idle_seconds": 0.75 * spent}
                extra |= {"load": 5.25, "cores": 8}
                rig.service.progress(name, self.tasks[name].id, count, count, 1.0, extra)
            rig.pass_time(1, "s0", *self.tasks)

    def test_one_is_reported_once_with_what_may_explain_it(self, rig):
        load = {"memory.used": 300 * 2**20}
        rig.service.heartbeat("w2", "running", load)
        self.run(rig, 20, w0=0.1, w1=0.2, w2=0.5)
        (text,) = rig.texts("straggler")
        assert text.startswith("its steps take 0.5 s, those of the others 0.15 s (median), for 5 s")
        assert text.endswith(
            "75% of it waiting (for servers, or for a core), load average 5.2 on 8 cores, "
            "memory 300 MB"
        )
        status = rig.service.status()
        assert [worker.straggler for worker in status.workers] == [False, False, True]
        assert [worker.step_seconds for worker in status.workers] == pytest.approx([0.1, 0.2, 0.5])
        assert status.workers[2].idle == pytest.approx(0.75)
        assert status.notices == (f"worker 2: {text}",)

    def test_it_is_over(self, rig):
        self.run(rig, 20, w0=0.1, w1=0.1, w2=0.5)
        self.run(rig, 15, w0=0.1, w1=0.1, w2=0.1)
        assert len(rig.texts("straggler")) == len(rig.texts("straggler-over")) == 1
        assert not any(worker.straggler for worker in rig.service.status().workers)

    def test_not_for_a_moment(self, rig):
        self.run(rig, 10, w0=0.1, w1=0.1, w2=0.1)
        self.run(rig, 1, w0=0.1, w1=0.1, w2=1.0)
        self.run(rig, 10, w0=0.1, w1=0.1, w2=0.1)
        assert not rig.texts("straggler")

    def test_one_that_makes_no_step(self, rig):
        self.run(rig, 5, w0=0.1, w1=0.1, w2=0.1)
        count, spent = self.done["w2"]
        for second in range(25):
            self.run(rig, 1, w0=0.1, w1=0.1)
            extra = {"steps": count, "step_seconds": spent, "step_age": float(second)}
            rig.service.progress("w2", self.tasks["w2"].id, count, count, 1.0, extra)
        assert "worker 2" in [event.who for event in rig.service.events().events]
        assert len(rig.texts("straggler")) == 1

    def test_one_that_does_not_even_report(self, rig):
        self.run(rig, 5, w0=0.1, w1=0.1, w2=0.1)
        self.run(rig, 20, w0=0.1, w1=0.1)
        (text,) = rig.texts("straggler")
        assert text.startswith("its steps take 16 s, those of the others 0.1 s (median), for 5 s")

    def test_one_that_is_lost_is_none_any_more(self, rig):
        self.run(rig, 20, w0=0.1, w1=0.1, w2=0.5)
        rig.service.fail("w2", "killed", exit_code=-9)
        rig.service.tick()
        assert rig.texts("straggler-over") == ["has left the job"]

    def test_the_last_one_has_nobody_to_be_compared_with(self, rig):
        for name in ("w0", "w1"):
            rig.service.release(name)
        self.run(rig, 30, w2=0.9)
        assert not rig.texts("straggler")


class TestStalls:
    @pytest.fixture
    def rig(self, tmp_path):
        return make(tmp_path, watch={"no_progress": 10})

    def told(self, rig):
        return rig.texts("no-progress")

    def test_workers_that_make_no_step(self, rig):
        first, _ = rig.task("w0"), rig.task("w1")
        rig.pass_time(9, *ALL)
        assert not self.told(rig)
        rig.pass_time(3, *ALL)
        assert self.told(rig) == ["no progress for 10 s: no step by worker 0, worker 1"]
        assert rig.service.status().stalled.startswith("no progress for 12 s: no step by")
        rig.service.progress("w0", first.id, 5, 1, 1.0)
        rig.service.tick()
        assert rig.texts("progress") == ["goes on after 12 s"]
        assert rig.service.status().stalled == ""
        assert rig.service.status().notices_so_far == 2

    def test_the_one_that_reports_nothing_is_named(self, rig):
        held = rig.task("w0")
        rig.task("w1")
        for _ in range(11):
            rig.service.progress("w0", held.id, 0, 0, 0.0)
            rig.pass_time(1, *ALL)
        assert self.told(rig) == [
            "no progress for 10 s: worker 1 reported nothing for 5 s and more"
        ]

    def test_a_server_that_does_not_answer_its_agent(self, rig):
        rig.task("w0")
        rig.service.heartbeat("s0", "serving", {"silent": 6.0, "rows.embedding": 5})
        rig.pass_time(10, *ALL)
        (text,) = self.told(rig)
        assert "the Paddle process of server 0" in text
        assert "has not answered its agent for 6 s" in text

    def test_who_can_not_reach_a_server(self, rig):
        held = rig.task("w0").id, rig.task("w1").id
        for second in range(121):
            lost = {UNREACHABLE: 0} if second > 4 else {}
            rig.service.progress("w0", held[0], 0, 0, 0.0, lost)
            rig.service.progress("w1", held[1], 0, 0, 0.0)
            state = rig.pass_time(1, *ALL)
        cut_off = "can't reach server 0 (10.0.0.2:s0)"
        assert rig.texts("cut-off") == [cut_off]
        assert self.told(rig) == [f"no progress for 10 s: worker 0 (10.0.0.9) {cut_off}"]
        assert state.reason.endswith(
            f"within 120 s (cluster.deadlines.first_step); worker 0 {cut_off}"
        )

    def test_what_a_process_said_is_nothing_about_the_next_one(self, rig):
        held = rig.task("w0").id
        rig.service.progress("w0", held, 0, 0, 0.0, {UNREACHABLE: 0})
        rig.service.heartbeat("s0", "serving", {"silent": 6.0})
        rig.service.fail("s0", "killed", exit_code=-9, again=True)
        begin_again(rig)
        rig.task("w0")
        rig.pass_time(11, *ALL)
        assert rig.texts("cut-off") == []
        assert self.told(rig) == ["no progress for 10 s: no step by worker 0"]

    def test_an_agent_that_is_silent(self, rig):
        rig.task("w0")
        rig.pass_time(3, *ALL)
        rig.pass_time(7, "s0", "w0")
        (text,) = self.told(rig)
        assert "worker 1 (10.0.0.9) was not heard of for" in text

    def test_who_is_missing_at_the_beginning(self, tmp_path):
        rig = Rig(tmp_path, watch={"no_progress": 10})
        rig.register("worker", "w0", 0)
        rig.pass_time(11, "w0")
        (text,) = self.told(rig)
        assert text == (
            "no progress for 10 s: waits for server 0 (not registered), worker 1 (not registered)"
        )

    def test_who_does_not_flush(self, rig):
        while rig.service.status().phase == "train":
            for name in ("w0", "w1"):
                rig.step(name)
        rig.service.lease("w0")
        if rig.service.status().phase == "flush":
            rig.pass_time(11, *ALL)
            assert "did not push what was learnt yet" in self.told(rig)[0]

    def test_a_save_may_take_longer(self, tmp_path):
        rig = make(
            tmp_path,
            watch={"no_progress": 10},
            cluster={"deadlines": {"checkpoint": 200}},
            checkpoint={"every": {"epochs": None, "tasks": 1}},
        )
        while rig.service.status().phase != "save":
            lease = rig.service.lease("w0")
            if lease.kind == "task":
                rig.finish_task("w0", lease.task)
            elif lease.kind == "flush":
                rig.service.arrive("w0", lease.name)
        rig.pass_time(15, *ALL)
        assert not self.told(rig)
        rig.pass_time(6, *ALL)
        assert self.told(rig) == ["no progress for 20 s: worker 0 saves a checkpoint"]

    def test_in_mode_bounded_the_slowest(self, tmp_path):
        mode = {"name": "bounded", "staleness": 4, "check_every": 2}
        rig = make(tmp_path, watch={"no_progress": 10}, mode=mode)
        for name in ("w0", "w1"):
            rig.task(name)
            rig.service.clock(name, 0, 0)
        rig.service.clock("w0", 0, 4)
        rig.pass_time(11, *ALL)
        assert self.told(rig) == ["no progress for 10 s: no step by worker 1"]
