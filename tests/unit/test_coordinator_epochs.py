"""From the first task to result.json: the order of the phases, the flush, the merged evaluation."""

import json

import pytest
from coordinator_rig import Rig, make_job, step, work

from fleet_config.errors import UserError
from fleetps.coordinator.service import JobService


def _end(rig: Rig, *workers: str) -> None:
    for worker in workers:
        rig.service.heartbeat(worker, "exited")


def test_two_workers_go_through_two_epochs_in_order(tmp_path):
    rig = Rig(tmp_path, job={"epochs": 2})
    rig.assemble()
    done = work(rig.service, "w0", "w1")

    assert [(task.epoch, task.training) for task in done] == (
        [(0, True)] * 4 + [(0, False)] + [(1, True)] * 4 + [(1, False)]
    )
    assert rig.state().job == "running"  # servers must outlive the workers
    _end(rig, "w0", "w1")
    state = rig.service.heartbeat("s0", "serving")
    assert (state.job, state.exit_code) == ("done", 0)
    rig.check_accounting()


def test_nothing_is_evaluated_before_every_worker_has_flushed(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    tasks = [rig.task("w0"), rig.task("w0"), rig.task("w1"), rig.task("w1")]
    for instance, task in zip(("w0", "w0", "w1"), tasks, strict=False):
        rig.finish_task(instance, task)
    assert (
        rig.service.lease("w0").kind == "wait"
    )  # worker 1 still trains, and may give its task back
    rig.finish_task("w1", tasks[3])

    flush = rig.service.lease("w0")
    assert flush.kind == "flush"
    rig.service.arrive("w0", flush.name)
    assert rig.service.lease("w0").kind == "wait"
    assert rig.service.lease("w1") == flush
    rig.service.arrive("w1", flush.name)
    assert rig.service.arrived(flush.name).ranks == (0, 1)
    assert not rig.task("w0").training


def test_a_worker_that_leaves_or_never_asked_for_work_is_not_waited_for(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    rig.register("worker", "late")
    for _ in range(4):
        rig.finish_task("w0", rig.task("w0"))
    assert rig.service.lease("w1").kind == "flush"
    assert rig.service.lease("w0").kind == "flush"
    rig.service.arrive("w0", "flush-0")
    rig.service.heartbeat("w1", "exited")
    assert not rig.task("w0").training


def test_the_barrier_deadline_names_who_did_not_flush(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    for _ in range(4):
        rig.finish_task("w0", rig.task("w0"))
    assert rig.service.lease("w1").kind == "flush"
    step(rig.service, "w0")
    state = rig.pass_time(121, "s0", "w0", "w1")
    assert state.job == "failed"
    assert "worker 1 did not finish pushing what was learnt within 120 s" in state.reason


def test_a_late_worker_joins_the_work(tmp_path):
    rig = Rig(tmp_path, cluster={"workers": 1})
    rig.assemble()
    rig.finish_task("w0", rig.task("w0"))
    assert rig.register("worker", "late") == 1
    assert rig.service.rendezvous("late").complete
    assert rig.service.rendezvous("late").workers == 2
    assert rig.task("late").training


def test_a_barrier_of_any_name(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    assert rig.service.arrived("dense-initialised").ranks == ()
    for _ in range(2):
        rig.service.arrive("w1", "dense-initialised")
    assert rig.service.arrived("dense-initialised").ranks == (1,)


def test_the_result_has_everything_and_adds_up(tmp_path):
    rig = Rig(tmp_path, job={"epochs": 2})
    rig.assemble()
    work(rig.service, "w0", "w1")
    path = rig.job.run_dir / "result.json"
    assert not path.exists()
    rig.clock.advance(30)
    _end(rig, "w0", "w1")

    result = json.loads(path.read_text())
    assert [epoch["epoch"] for epoch in result["history"]] == [0, 1]
    final = result["final"]
    assert final == result["history"][-1]
    assert (final["auc"], final["evaluated_rows"], final["train_rows"]) == (1.0, 20, 100)
    assert final["train_loss"] == pytest.approx(0.7)
    assert final["log_loss"] == pytest.approx(0.5)
    assert final["calibration"] == pytest.approx(1.2)
    assert result["best_auc"] == 0.81
    assert result["rows"] == 200
    assert result["accounting"] == {
        "total": 240,
        "leased": 240,
        "done": 240,
        "held": 0,
        "returned": 0,
        "repeated": 0,
        "waiting": 0,
        "quarantined": 0,
        "skipped": 0,
    }
    assert result["seconds"] == 30
    assert result["job"]["data"]["batch_size"] == 512
    assert {"fleetps", "python"} <= result["versions"].keys()
    assert not list(path.parent.glob(".*tmp"))


@pytest.mark.parametrize(("every", "evaluated"), [(0, []), (1, [0, 1, 2]), (2, [1, 2]), (3, [2])])
def test_evaluation_every_so_many_epochs_and_at_the_end(tmp_path, every, evaluated):
    rig = Rig(tmp_path, job={"epochs": 3}, evaluate={"every_epochs": every})
    rig.assemble()
    done = work(rig.service, "w0", "w1")
    assert [task.epoch for task in done if not task.training] == evaluated
    history = rig.service.status().history
    assert [result.epoch for result in history if result.evaluated_rows] == evaluated
    assert len(history) == 3


def test_a_worker_that_does_not_end_does_not_keep_the_result_back(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    work(rig.service, "w0", "w1")
    rig.service.heartbeat("w0", "exited")
    assert rig.pass_time(9, "s0", "w1").job == "running"
    assert rig.pass_time(2, "s0", "w1").job == "done"
    assert "late" in rig.kinds()
    rig.service.fail("w1", "killed because it did not end")
    assert rig.state().job == "done"


def test_a_split_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    Rig(tmp_path, splits={"train": [10], "validation": [5]}, evaluate={"split": "validation"})
    with pytest.raises(UserError, match=r"has no split 'test'; it has: train, validation"):
        Rig(tmp_path / "other", splits={"train": [10], "validation": [5]})


def test_local_needs_no_servers_no_heartbeats_and_no_ticks(tmp_path):
    rig = Rig(tmp_path)
    job = make_job(tmp_path, job={"name": "local"}, cluster={"servers": 3, "workers": 5})
    service = JobService(job, rig.dataset, local=True, clock=rig.clock, wall=rig.clock)
    service.register("worker", "me", "localhost", None, job.digest())
    assert service.rendezvous("me").complete
    rig.clock.advance(10_000)
    work(service, "me")
    service.heartbeat("me", "exited")
    assert service.status().job == "done"
    assert (job.run_dir / "result.json").exists()


def test_status_shows_speed_loss_and_time_left(tmp_path):
    rig = Rig(tmp_path, splits={"train": [1000], "test": [20]}, data={"task_rows": 500})
    rig.assemble()
    task = rig.task("w0")
    for second in range(1, 5):
        rig.clock.advance(1)
        rig.service.progress("w0", task.id, second * 100, second, second * 60.0, {"lr": 0.1})
    status = rig.service.status()
    assert status.phase == "train"
    assert (status.rows_done, status.rows_total) == (400, 1000)
    assert (status.phase_rows_done, status.phase_rows_total) == (400, 1000)
    assert status.rows_per_second == pytest.approx(100)
    assert status.loss == pytest.approx(0.6)
    assert status.eta == pytest.approx(6)
    assert status.loss_curve[-1] == (400, pytest.approx(0.6))
    worker = status.workers[0]
    assert (worker.rows, worker.task, worker.extra) == (400, task.id, {"lr": 0.1})
    assert worker.rows_per_second == pytest.approx(100)
    assert [server.state for server in status.servers] == ["serving"]
    rig.clock.advance(30)
    assert rig.service.status().rows_per_second < 1


def test_the_loss_curve_stays_small(tmp_path):
    rig = Rig(tmp_path, splits={"train": [5000], "test": [20]}, data={"task_rows": 5000})
    rig.assemble()
    task = rig.task("w0")
    for rows in range(1, 5001):
        rig.service.progress("w0", task.id, rows, rows, rows * 0.5)
    points = rig.service.status().loss_curve
    assert 50 <= len(points) <= 201
    assert [rows for rows, _ in points] == sorted({rows for rows, _ in points})
