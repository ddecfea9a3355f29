"""Whatever workers do, with restarts in between: all rows are trained, and they add up."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from coordinator_rig import Rig, finish, save, work
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleetps.coordinator.messages import INITIALISED, Task

_WORKERS = 3


class Jobs(RuleBasedStateMachine):
    """Keeps its own books beside the coordinator's.

    Tasks that are done are remembered as of the last checkpoint, too: a server's death goes back.
    """

    @initialize(rows=st.lists(st.integers(1, 60), min_size=1, max_size=4))
    def begin(self, rows):
        # In memory, because each of the thousands of calls is synchronised to the disk.
        self.root = Path(tempfile.mkdtemp(dir=next(filter(os.path.isdir, ["/dev/shm"]), None)))
        self.rig = Rig(
            self.root,
            job={"epochs": 2},
            cluster={"workers": _WORKERS, "generations": 1_000},
            splits={"train": rows, "test": [10]},
            checkpoint={"every": {"epochs": 1, "tasks": 2}},
        )
        self.rig.assemble()
        self.held: dict[str, list[Task]] = {f"w{i}": [] for i in range(_WORKERS)}
        self.leased = 0
        self.done: dict[int, int] = {}  # rows by task
        self.saved: dict[int, int] = {}
        self.trained = False  # in this generation
        self.failures: dict[int, int] = {}

    workers = st.sampled_from([f"w{i}" for i in range(_WORKERS)])

    @rule(worker=workers)
    def lease(self, worker):
        lease = self.rig.service.lease(worker)
        if lease.kind == "task":
            self.held[worker].append(lease.task)
            self.leased += lease.task.rows
        elif lease.kind == "flush":
            self.rig.service.arrive(worker, lease.name)
        elif lease.kind == "chore":
            name = save(self.rig.job, self.rig.dataset, lease)
            self.rig.service.arrive(worker, lease.name, name)
            self.saved = dict(self.done)

    @rule(worker=workers, pick=st.integers(0, 1))
    def finish(self, worker, pick):
        if pick < len(self.held[worker]):
            task = self.held[worker].pop(pick)
            assert finish(self.rig.service, worker, task)
            assert finish(self.rig.service, worker, task)  # the answer to the first was lost
            self.done[task.id] = task.rows
            self.trained |= task.training

    @rule(worker=workers, part=st.floats(0, 1))
    def progress(self, worker, part):
        for task in self.held[worker][:1]:
            rows = int(task.rows * part)
            assert self.rig.service.progress(worker, task.id, rows, rows, 0.5 * rows).accepted

    @rule(worker=workers)
    def fail_one(self, worker):
        # The third failure of a task ends the job, which is another test.
        if self.held[worker] and self.failures.get(self.held[worker][0].id, 0) < 2:
            task = self.held[worker].pop(0)
            self.failures[task.id] = self.failures.get(task.id, 0) + 1
            assert self.rig.service.failed(worker, task.id, "no luck").accepted

    @rule(worker=workers)
    def release(self, worker):
        self.rig.service.release(worker)
        self.held[worker].clear()

    @rule(worker=workers, part=st.floats(0, 1))
    def leave_a_task_half_done(self, worker, part):
        """What is done of it counts, and nothing of the other that the worker holds was begun."""
        if not self.held[worker] or not self.held[worker][0].training:
            return
        task = self.held[worker][0]
        rows = int(task.rows * part)
        answer = self.rig.service.part_done(worker, task.id, rows, rows, 0.5 * rows)
        assert answer.accepted == (rows > 0)
        self.rig.service.release(worker, begun=False)
        self.held[worker].clear()
        if rows:
            self.done[task.id] = rows
            self.trained = True

    @rule(rounds=st.integers(1, 6))
    def go_on(self, rounds):
        """Everybody works; without this a random walk gets nowhere."""
        for _ in range(rounds):
            for worker in self.held:
                self.lease(worker)
                self.finish(worker, 0)

    @rule()
    def restart(self):
        self.rig.restart()

    @precondition(lambda self: self.trained and self.rig.service.status().phase != "finish")
    @rule()
    def lose_the_server(self):
        assert self.rig.service.fail("s0", "killed", exit_code=-9, again=True).job == "running"
        self.rig.begin_again("s0", *self.held)
        self.rig.service.arrive("w0", INITIALISED)
        for held in self.held.values():
            held.clear()
        self.done = dict(self.saved)
        self.trained = False

    @precondition(lambda self: hasattr(self, "rig"))
    @invariant()
    def adds_up(self):
        self.rig.check_accounting()
        rows = self.rig.service.status().accounting
        assert rows.leased == self.leased
        assert rows.done == sum(self.done.values())
        assert rows.held == sum(task.rows for held in self.held.values() for task in held)
        assert rows.quarantined == 0

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        for worker in self.held:
            self.rig.service.release(worker)
        self.rig.work(*self.held)
        status = self.rig.service.status()
        assert status.rows_done == status.rows_total
        assert status.accounting.done == status.accounting.total
        assert status.accounting.repeated <= status.accounting.returned
        assert [result.auc for result in status.history] == [1.0, 1.0]
        self.rig.service.close()
        shutil.rmtree(self.root)


Jobs.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
)
TestJobs = Jobs.TestCase


def test_many_threads_get_every_task_exactly_once(tmp_path):
    rig = Rig(
        tmp_path,
        cluster={"workers": 8},
        splits={"train": [1000], "test": [50]},
        data={"task_rows": 5},
    )
    rig.assemble()
    done: list[list[int]] = [[] for _ in range(8)]
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            done[index] = [task.id for task in work(rig.service, f"w{index}")]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    everything = [task for tasks in done for task in tasks]
    assert len(everything) == len(set(everything)) == 210
    rig.check_accounting()
    assert rig.service.status().accounting.repeated == 0
