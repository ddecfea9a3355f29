"""A lost server: everybody begins again, and what a checkpoint doesn't hold is trained again."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from coordinator_rig import Rig, finish, make_dataset, make_job

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER, TryAgain, UserError
from fleetps.coordinator import service
from fleetps.coordinator.choice import choose
from fleetps.coordinator.messages import INITIALISED
from fleetps.coordinator.service import JobService


@pytest.fixture
def rig(tmp_path):
    rig = Rig(
        tmp_path,
        job={"epochs": 2},
        cluster={"servers": 2},
        checkpoint={"every": {"epochs": 1, "tasks": 2}},
    )
    rig.assemble()
    yield rig
    rig.check_accounting()


ALL = ("s0", "s1", "w0", "w1")


def kill(rig, name="s1", reason="killed"):
    state = rig.service.fail(name, reason, ["last line"], -9, again=True)
    rig.service.tick()  # chooses the checkpoint
    restore = rig.service.rendezvous("w1" if name == "w0" else "w0").restore
    return state.model_copy(update={"restore": restore})


def begin_again(rig, *names):
    rig.begin_again(*names or ALL)
    if rig.service.status().phase == "restore":
        rig.service.arrive("w0", INITIALISED)


def take_checkpoint(rig, number=1):
    """Two tasks, and a checkpoint of them."""
    for _ in range(2):
        rig.finish_task("w0", rig.task("w0"))
    while len(rig.texts("checkpoint")) < number:
        rig.step("w0")


class TestWithoutACheckpoint:
    def test_the_job_begins_at_the_beginning(self, rig):
        done = rig.task("w0")
        rig.finish_task("w0", done)
        rig.task("w1")
        state = kill(rig)
        assert (state.job, state.generation, state.restore) == ("running", 1, "")
        (text,) = rig.texts("generation")
        assert text == (
            "killed; generation 1 begins from the beginning, as there is no checkpoint yet; "
            "25 rows are trained again"
        )
        begin_again(rig)
        assert rig.task("w1").id == done.id
        assert rig.service.status().accounting.repeated == 25

    def test_what_is_asked_for_comes_when_there_is_something(self, rig):
        kill(rig)
        rig.service.checkpoint("now")
        begin_again(rig)
        assert rig.service.status().checkpoint.pending


class TestWithACheckpoint:
    def test_what_came_after_it_is_trained_again(self, rig):
        take_checkpoint(rig)
        third = rig.task("w1")
        rig.finish_task("w1", third)
        fourth = rig.task("w0")
        name = rig.texts("checkpoint")[0].split(":")[0]
        state = kill(rig)
        assert state.restore.endswith(f"/checkpoints/{name}")
        (text,) = rig.texts("generation")
        assert text == (
            f"killed; generation 1 begins with checkpoint {name} (epoch 1, 50 rows trained); "
            "25 rows are trained again"
        )
        status = rig.service.status()
        assert (status.rows_done, status.accounting.returned) == (50, 50)
        begin_again(rig)
        tasks = [task for task in rig.work("w0", "w1") if task.epoch == 0 and task.training]
        assert {task.id for task in tasks} == {third.id, fourth.id}
        assert sorted(task.rows_before for task in tasks) == [50, 75]
        assert rig.service.status().accounting.repeated == 50
        assert rig.service.status().rows_done == 200

    def test_servers_load_it_before_anybody_trains(self, rig):
        take_checkpoint(rig)
        kill(rig)
        rig.begin_again(*ALL)
        status = rig.service.status()
        assert status.phase == "restore"
        meeting = rig.service.rendezvous("w0")
        assert meeting.complete
        assert meeting.restore == rig.service.rendezvous("w1").restore
        assert rig.service.lease("w0").kind == "wait"
        rig.service.arrive("w1", INITIALISED)
        assert rig.service.lease("w1").kind == "wait"
        rig.service.arrive("w0", INITIALISED)
        assert rig.service.lease("w1").kind == "task"

    def test_the_worker_that_loads_it_dies(self, rig):
        take_checkpoint(rig)
        kill(rig)
        rig.begin_again(*ALL)
        state = rig.service.fail("w0", "killed", exit_code=-9, again=True)
        assert state.generation == 2
        rig.service.tick()
        assert "it was loading the checkpoint" in rig.texts("generation")[1]

    def test_the_worker_that_loads_it_hangs(self, rig):
        take_checkpoint(rig)
        kill(rig)
        rig.begin_again(*ALL)
        limit = rig.job.cluster.deadlines.checkpoint
        assert rig.pass_time(limit - 1, *ALL).generation == 1
        assert rig.pass_time(2, *ALL).generation == 2
        told = rig.texts("generation")[1]
        assert told.startswith("has not loaded ")
        assert f"within {limit:g} s (cluster.deadlines.checkpoint); generation 2 begins" in told

    def test_while_it_is_read_the_coordinator_answers(self, rig, monkeypatch):
        take_checkpoint(rig)
        missing = []

        def read(rows):
            with ThreadPoolExecutor(1) as pool:
                meeting = pool.submit(rig.service.rendezvous, "w0").result(10)
                missing.extend(meeting.missing)
            return choose(rows)

        monkeypatch.setattr(service, "choose", read)
        rig.service.fail("s1", "killed", exit_code=-9, again=True)
        for name in ALL:
            rig.register("server" if name[0] == "s" else "worker", name)
            rig.service.heartbeat(name, "serving" if name[0] == "s" else "running")
        assert rig.service.lease("w0").kind == "wait"
        rig.service.tick()
        assert missing == ["the coordinator (it is reading checkpoints)"]
        assert rig.service.status().phase == "restore"

    def test_the_coordinator_dies_while_it_is_read(self, rig):
        take_checkpoint(rig)
        rig.service.fail("s1", "killed", exit_code=-9, again=True)
        rig.restart()
        rig.begin_again(*ALL)
        assert rig.service.status().phase == "restore"
        assert rig.texts("generation")[0].startswith("killed; generation 1 begins with checkpoint")

    def test_a_damaged_one_is_not_taken(self, rig):
        take_checkpoint(rig)
        take_checkpoint(rig, 2)
        directory = rig.job.run_dir / "checkpoints"
        next(directory.glob("000002-*/manifest.json")).write_text("{")
        assert "/000001-" in kill(rig).restore
        assert "manifest.json: is damaged" in rig.texts("checkpoint-damaged")[0]

    def test_while_none_can_be_read_nothing_begins_anew(self, rig):
        take_checkpoint(rig)
        directory = rig.job.run_dir / "checkpoints"
        away = directory.rename(rig.root / "away")
        kill(rig)
        state = rig.state()
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert state.reason.startswith("server 1: killed; no checkpoint can be read; the newest: ")
        assert "there is no such directory; bring it back and start the job again" in state.reason
        rig.restart()
        rig.service.tick()
        assert rig.state().reason.startswith("coordinator: the job was started again; no checkp")
        away.rename(directory)
        rig.restart()
        rig.assemble()
        assert rig.service.status().rows_done == 50

    def test_evaluations_are_made_again(self, rig):
        while rig.service.status().phase != "evaluate":
            rig.step("w0")
        kill(rig)
        begin_again(rig)
        assert rig.service.status().phase == "evaluate"
        evaluation = rig.task("w0")
        assert (evaluation.training, evaluation.generation) == (False, 1)
        finish(rig.service, "w0", evaluation)
        assert rig.service.status().history[0].evaluated_rows == 20

    def test_the_tables_are_not_shrunk_twice(self, tmp_path):
        rig = Rig(
            tmp_path,
            tables={"embedding": {"eviction": {"every_epochs": 1}}},
            checkpoint={"every": {"epochs": 1}},
        )
        rig.assemble()
        chores = []
        while rig.service.status().phase != "evaluate":
            lease = rig.step("w0")
            chores += [lease.action] if lease.kind == "chore" else []
        assert chores == ["shrink", "save"]
        kill(rig, "s0")
        begin_again(rig, "s0", "w0", "w1")
        assert rig.service.status().phase == "evaluate"

    def test_an_epoch_that_was_closed_is_opened_again(self, tmp_path):
        other = Rig(tmp_path, job={"epochs": 3}, checkpoint={"every": {"epochs": 3}})
        other.assemble()
        while not other.service.status().history:
            other.step("w0")
        kill(other, "s0")
        assert other.service.status().history == ()
        begin_again(other, "s0", "w0", "w1")
        trained = [task for task in other.work("w0", "w1") if task.training]
        assert sum(task.rows for task in trained) == 300
        other.check_accounting()
        assert other.service.status().accounting.repeated >= 100

    def test_one_that_is_being_taken_is_given_up(self, rig):
        for _ in range(2):
            rig.finish_task("w0", rig.task("w0"))
        kill(rig)
        assert "server 1: killed" in rig.texts("checkpoint-lost")[0]
        begin_again(rig)
        rig.work("w0", "w1")
        assert rig.service.status().checkpoint.failures == 0


class TestWhoHasNotComeYet:
    def test_its_process_is_told_to_end(self, rig):
        task = rig.task("w0")
        kill(rig)
        lease = rig.service.lease("w0")
        assert (lease.kind, lease.reason) == ("stop", "generation 1 of the job has begun")
        assert not finish(rig.service, "w0", task)
        assert not rig.service.progress("w0", task.id, 1, 1, 0.1).accepted
        rig.service.arrive("w0", INITIALISED)
        assert rig.service.arrived(INITIALISED).ranks == ()

    def test_its_death_means_nothing(self, rig):
        rig.task("w0")
        kill(rig)
        assert kill(rig, "s0", "killed too").generation == 1
        assert kill(rig, "w0", "lost its servers").generation == 1
        assert rig.service.status().workers_lost == 0
        begin_again(rig)
        assert rig.task("w0").generation == 1

    def test_its_states_are_those_of_an_ended_process(self, rig):
        kill(rig)
        rig.service.heartbeat("s0", "serving", generation=0)
        rig.service.heartbeat("s0", "serving")
        assert rig.service.status().servers[0].state == "registered"
        rig.register("server", "s0")
        rig.service.heartbeat("s0", "serving", generation=0)
        assert rig.service.status().servers[0].state == "registered"
        rig.service.heartbeat("s0", "serving", generation=1)
        assert rig.service.status().servers[0].state == "serving"

    def test_it_is_waited_for_and_named(self, rig):
        kill(rig)
        begin_again(rig, "s0", "w0", "w1")
        assert rig.service.status().missing == ("server 1 (not registered)",)
        state = rig.pass_time(61, *ALL)
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert "server 1 did not register within 60 s" in state.reason

    def test_a_dead_one_is_given_the_time_to_come_back(self, rig):
        kill(rig)
        rig.pass_time(20, "s0", "w0", "w1")
        assert rig.state().generation == 1
        rig.register("server", "s1")
        assert rig.service.rendezvous("s0").servers == ()


class TestServers:
    def test_two_at_once(self, rig):
        rig.pass_time(11, "w0", "w1")
        assert rig.state().generation == 1
        for name in ("new", "newer"):
            rig.register("server", name)
            rig.service.heartbeat(name, "serving")
        begin_again(rig, "w0", "w1")
        assert rig.task("w0").generation == 1

    def test_together_with_worker_0_for_which_another_has_come_already(self, rig):
        assert rig.register("worker", "w2") == 2  # nobody misses worker 0 yet
        kill(rig, "s1")
        rig.begin_again("s0", "s1", "w1", "w2")
        state = rig.pass_time(11, "s0", "s1", "w1", "w2")
        assert (state.job, state.generation) == ("running", 2)
        rig.begin_again("s0", "s1", "w1", "w2")
        assert rig.texts("generation")[-1].startswith("was lost while the others began again;")
        assert [worker.rank for worker in rig.service.status().workers] == [0, 2]
        assert rig.task("w2")

    def test_at_another_address(self, rig):
        kill(rig)
        digest = rig.job.digest()
        rig.service.register("server", "s1", "10.9.9.9:7000", 1, digest)
        rig.register("server", "s0")
        assert rig.service.rendezvous("s0").servers == ("10.0.0.2:s0", "10.9.9.9:7000")

    def test_one_that_comes_back_before_it_was_missed(self, rig):
        rig.service.register("server", "s1", "10.0.0.2:s1", 1, rig.job.digest())
        assert rig.state().generation == 1
        rig.service.tick()
        assert "was started again" in rig.texts("generation")[0]
        assert rig.service.status().servers[1].state == "registered"

    def test_a_new_process_gets_the_place_of_one_that_is_silent(self, rig):
        rig.pass_time(6, "s0", "w0", "w1")
        assert rig.register("server", "pod", rank=1) == 1
        assert rig.state().generation == 1
        assert rig.service.heartbeat("s1", "serving").generation == 1
        with pytest.raises(TryAgain, match="server rank 1 is taken by"):
            rig.register("server", "s1", rank=1)

    def test_but_not_of_one_that_lives(self, rig):
        with pytest.raises(TryAgain, match="server rank 1 is taken by"):
            rig.register("server", "pod", rank=1)
        with pytest.raises(TryAgain, match="has no place"):
            rig.register("server", "pod")

    def test_one_that_will_not_come_back_ends_the_job(self, rig):
        state = rig.service.fail("s1", "killed; it had been started again 3 times", exit_code=-9)
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)

    def test_the_users_mistake_ends_the_job(self, rig):
        state = rig.service.fail("s1", "no such column", exit_code=2, again=True)
        assert (state.job, state.exit_code) == ("failed", EXIT_USER)

    def test_when_all_is_trained_none_is_needed(self, rig):
        rig.work("w0", "w1")
        assert kill(rig).job == "running"
        for name in ("w0", "w1"):
            rig.service.heartbeat(name, "exited")
        assert rig.state().job == "done"


class TestLimits:
    def test_three_in_a_row_without_a_task_done(self, rig):
        for generation in (1, 2, 3):
            assert kill(rig).generation == generation
            begin_again(rig)
        state = kill(rig)
        assert state.reason == "server 1: killed; no task was done in the last 3 generations"
        assert state.exit_code == EXIT_TRY_AGAIN

    def test_tasks_of_an_evaluation_count_too(self, tmp_path):
        splits = {"train": [50], "test": [100]}
        rig = Rig(tmp_path, splits=splits, checkpoint={"every": {"epochs": 1}})
        rig.assemble()
        while rig.service.status().phase != "evaluate":
            rig.step("w0")
        for generation in (1, 2, 3, 4):
            assert kill(rig, "s0").generation == generation
            begin_again(rig, "s0", "w0", "w1")
            rig.finish_task("w0", rig.task("w0"))
            assert rig.service.status().phase == "evaluate"

    def test_so_many_without_a_checkpoint(self, tmp_path):
        rig = Rig(tmp_path, cluster={"generations": 4})
        rig.assemble()
        for _ in range(4):
            rig.finish_task("w0", rig.task("w0"))
            assert kill(rig, "s0").job == "running"
            begin_again(rig, "s0", "w0", "w1")
        rig.finish_task("w0", rig.task("w0"))
        reason = kill(rig, "s0").reason
        assert "4 generations have begun since the last checkpoint (cluster.generations)" in reason

    def test_workers_that_were_given_up_are_not_waited_for(self, rig):
        rig.service.fail("w1", "killed", exit_code=-9)
        kill(rig)
        begin_again(rig, "s0", "s1", "w0")
        assert rig.task("w0").generation == 1


class TestSync:
    @pytest.fixture
    def rig(self, tmp_path):
        rig = Rig(
            tmp_path,
            mode="sync",
            data={"task_rows": 10, "batch_size": 5},
            checkpoint={"every": {"epochs": None, "tasks": 4}},
        )
        rig.assemble()
        return rig

    def test_a_workers_death(self, rig):
        for _ in range(2):
            for name in ("w0", "w1"):
                rig.finish_task(name, rig.task(name))
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        rig.finish_task("w0", rig.task("w0"))
        state = kill(rig, "w1")
        assert (state.job, state.generation) == ("running", 1)
        begin_again(rig, "s0", "w0", "w1")
        tasks = [task for task in rig.work("w0", "w1") if task.training]
        assert [task.rows_before for task in tasks] == [40, 40, 60, 60, 80, 80]
        rig.check_accounting()

    def test_one_that_makes_no_step(self, rig):
        tasks = {name: rig.task(name) for name in ("w0", "w1")}
        for name, task in tasks.items():
            rig.service.progress(name, task.id, 5, 1, 1.0)
        for _ in range(61):
            rig.service.progress("w0", tasks["w0"].id, 5, 1, 1.0)
            rig.pass_time(1, "s0", "w0", "w1")
        assert rig.state().generation == 1
        assert rig.service.events().events[-1].who == "worker 1"

    @pytest.mark.parametrize(("lost", "left"), [("0", "1"), ("1", "0")])
    def test_all_workers_are_waited_for(self, rig, lost, left):
        others = ("s0", f"w{left}")
        rig.pass_time(11, *others)
        begin_again(rig, *others)
        assert rig.service.status().missing == (f"worker {lost} (not registered)",)
        state = rig.pass_time(61, *others)
        assert (state.job, state.exit_code) == ("failed", EXIT_TRY_AGAIN)
        assert f"worker {lost} did not register within 60 s" in state.reason

    def test_one_that_comes_for_the_place_of_worker_0(self, rig):
        rig.pass_time(11, "s0", "w1")
        begin_again(rig, "s0", "w1")
        assert rig.register("worker", "new") == 0
        assert rig.task("new").rows_before == rig.task("w1").rows_before == 0

    def test_one_that_was_in_no_group_takes_the_place_of_worker_0(self, rig):
        assert rig.register("worker", "w2") == 2
        rig.pass_time(11, "s0", "w1", "w2")
        begin_again(rig, "s0", "w1", "w2")
        assert [worker.rank for worker in rig.service.status().workers] == [0, 1]
        assert rig.task("w2").rows_before == rig.task("w1").rows_before == 0


class TestTheWholeJob:
    def run_and_stop(self, tmp_path, **sections):
        """Two of four tasks are in a checkpoint, a third one is done; then all is gone."""
        settings = {"checkpoint": {"every": {"epochs": None, "tasks": 2}}, **sections}
        rig = Rig(tmp_path, job={"epochs": 2}, **settings)
        rig.assemble()
        take_checkpoint(rig)
        if rig.job.mode_names == {"async"}:
            rig.finish_task("w0", rig.task("w0"))
        rig.service.close()
        return rig

    def again(self, rig, **sections):
        settings = {"checkpoint": {"every": {"epochs": None, "tasks": 2}}, **sections}
        rig.job = make_job(rig.root, job={"epochs": 2}, **settings)
        rig.service = JobService(rig.job, rig.dataset, again=True, clock=rig.clock, wall=rig.clock)
        assert rig.state().job in ("running", "waiting")
        rig.assemble()
        assert rig.service.status().phase == "restore"
        rig.service.arrive("w0", INITIALISED)

    def check_the_rest(self, rig, rows_before=50):
        workers = [f"w{rank}" for rank in range(rig.job.cluster.workers)]
        tasks = [task for task in rig.work(*workers) if task.training]
        first = [task for task in tasks if task.epoch == 0]
        assert sum(task.rows for task in first) == 50
        assert min(task.rows_before for task in first) == rows_before
        assert sum(task.rows for task in tasks) == 150
        rig.check_accounting()
        status = rig.service.status()
        assert status.rows_done == 200
        assert [result.train_rows for result in status.history] == [100, 100]
        assert status.history[0].train_loss == pytest.approx(0.7)
        return tasks

    def test_it_goes_on_with_its_state(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        self.again(rig)
        assert rig.state().generation == 1
        self.check_the_rest(rig)
        assert rig.service.status().accounting.repeated == 25
        assert not list(rig.job.run_dir.glob("previous-*"))

    @pytest.mark.parametrize(
        "change", [{"servers": 3}, {"workers": 1}, {"workers": 3, "servers": 2}]
    )
    def test_with_another_number_of_processes(self, tmp_path, change):
        rig = self.run_and_stop(tmp_path)
        self.again(rig, cluster=change)
        self.check_the_rest(rig)

    def test_with_larger_tasks_for_other_workers(self, tmp_path):
        """The cut follows the number of workers, so what is left is cut anew."""
        splits = {"train": [60_000, 30_000], "test": [20]}
        rig = Rig(
            tmp_path,
            splits=splits,
            data={"task_rows": "auto"},
            cluster={"workers": 1},
            checkpoint={"every": {"epochs": None, "tasks": 2}},
        )
        rig.assemble()
        take_checkpoint(rig)
        done = rig.service.status().checkpoint.rows
        rig.service.close()
        rig.job = make_job(
            tmp_path,
            data={"task_rows": "auto"},
            cluster={"workers": 3, "servers": 2},
            checkpoint={"every": {"epochs": None}},
        )
        rig.service = JobService(rig.job, rig.dataset, again=True, clock=rig.clock, wall=rig.clock)
        rig.assemble()
        rig.service.arrive("w0", INITIALISED)
        tasks = [task for task in rig.work("w0", "w1", "w2") if task.training]
        assert sum(task.rows for task in tasks) == 90_000 - done
        rig.check_accounting()

    def test_in_sync_with_another_number_of_workers(self, tmp_path):
        splits = {"train": [70, 33], "test": [20]}
        sync = {"mode": "sync", "data": {"task_rows": 10, "batch_size": 5}}
        every = {"checkpoint": {"every": {"epochs": None, "tasks": 2}}}
        rig = Rig(tmp_path, splits=splits, **sync, **every)
        rig.assemble()
        for name in ("w0", "w1"):
            rig.finish_task(name, rig.task(name))
        for name in ("w0", "w1", "w0"):
            rig.step(name)
        assert rig.service.status().checkpoint.rows == 20
        rig.service.close()
        rig.job = make_job(tmp_path, **sync, **every, cluster={"workers": 3})
        rig.service = JobService(rig.job, rig.dataset, again=True, clock=rig.clock, wall=rig.clock)
        assert len(list(rig.job.run_dir.glob("previous-*"))) == 1
        rig.assemble()
        rig.service.arrive("w0", INITIALISED)
        tasks = [task for task in rig.work("w0", "w1", "w2") if task.training]
        assert sum(task.rows for task in tasks) == 83
        assert tasks[0].rows_before == 20
        rig.check_accounting()

    def test_after_a_failure(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        rig.service = rig.start()
        rig.service.fail("s0", "its restarts are used up", exit_code=-9)
        rig.service.close()
        rig.service = rig.start()
        assert (rig.state().job, rig.state().generation) == ("running", 1)
        assert rig.service.status().failure is None

    def test_never(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        rig.job = make_job(tmp_path, job={"epochs": 2}, checkpoint={"resume": "never"})
        rig.service = JobService(rig.job, rig.dataset, again=True)
        assert rig.kinds() == ["created"]
        rig.assemble()
        assert rig.service.status().rows_done == 0

    def test_a_fresh_state_with_checkpoints_that_can_not_be_read(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        next((rig.job.run_dir / "checkpoints").glob("000001-*/manifest.json")).unlink()
        (rig.job.run_dir / "coordinator.sqlite").unlink()
        with pytest.raises(TryAgain, match=r"^no checkpoint can be read; .* has no manifest\.json"):
            rig.start()
        next((rig.job.run_dir / "checkpoints").glob("000001-*")).rename(tmp_path / "away")
        (rig.job.run_dir / "checkpoints" / "lost+found").mkdir()  # of a volume
        rig.service = rig.start()
        assert rig.service.status().rows_done == 0

    def test_from_a_certain_one_and_a_warm_start(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        one = next((rig.job.run_dir / "checkpoints").glob("000001-*"))
        job = make_job(
            tmp_path, job={"name": "other", "epochs": 2}, checkpoint={"resume": str(one)}
        )
        service = JobService(job, rig.dataset)
        assert service.status().rows_done == 50
        assert service.status().checkpoint.name == one.name
        job = make_job(tmp_path, job={"name": "warm"}, checkpoint={"warm_start": str(one)})
        service = JobService(job, rig.dataset)
        assert service.status().rows_done == 0
        assert service.stop("enough").restore == str(one)

    def test_a_checkpoint_that_does_not_fit_is_refused(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        rig.job = make_job(tmp_path, job={"epochs": 2}, tables={"embedding": {"dim": 3}})
        with pytest.raises(UserError, match=r"tables\.embedding\.dim is"):
            JobService(rig.job, rig.dataset, again=True)

    def test_other_data_are_refused(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        other = make_dataset(tmp_path / "others", {"train": [99], "test": [20]})
        rig.job = make_job(tmp_path, cluster={"servers": 2})
        with pytest.raises(UserError, match="was made with other data"):
            JobService(rig.job, other, again=True)

    def test_so_are_data_that_were_made_anew(self, tmp_path):
        rig = self.run_and_stop(tmp_path)
        made_anew = make_dataset(tmp_path / "data", {"train": [60, 40], "test": [20]})
        with pytest.raises(UserError, match="was made with other data"):
            JobService(rig.job, made_anew, again=True)

    def test_only_the_last_evaluation_is_left(self, tmp_path):
        rig = Rig(tmp_path, checkpoint={"every": {"epochs": 1}})
        rig.assemble()
        while rig.service.status().phase != "evaluate":
            rig.step("w0")
        rig.service.close()
        rig.job = make_job(tmp_path, cluster={"servers": 2})
        rig.service = JobService(rig.job, rig.dataset, again=True, clock=rig.clock, wall=rig.clock)
        rig.assemble()
        rig.service.arrive("w0", INITIALISED)
        (task,) = rig.work("w0", "w1")
        assert not task.training
        rig.check_accounting()

    def test_a_finished_run_is_set_aside_with_its_checkpoints(self, tmp_path):
        rig = Rig(tmp_path, checkpoint={"every": {"epochs": 1}})
        rig.assemble()
        rig.work("w0", "w1")
        for name in ("w0", "w1"):
            rig.service.heartbeat(name, "exited")
        rig.service.close()
        rig.service = JobService(rig.job, rig.dataset, again=True)
        assert rig.kinds() == ["created"]
        assert len(list(rig.job.run_dir.glob("previous-*/checkpoints/000001-*"))) == 1
