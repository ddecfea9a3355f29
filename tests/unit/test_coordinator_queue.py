"""Tasks: leased, renewed, returned; at least once, counted exactly."""

import pytest
from coordinator_rig import Rig, scores

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    yield rig
    rig.check_accounting()


def test_at_most_two_tasks_are_held(rig):
    first, second = rig.task("w0"), rig.task("w0")
    assert first.id != second.id
    assert rig.service.lease("w0").kind == "wait"
    rig.finish_task("w0", first)
    assert rig.service.lease("w0").kind == "task"


def test_a_retried_request_gets_the_same_task(rig):
    first = rig.service.lease("w0", "request-1")
    again = rig.service.lease("w0", "request-1")
    other = rig.service.lease("w0", "request-2")
    assert first == again
    assert other.kind == "task"
    assert other != first
    assert rig.service.status().accounting.leased == 50


def test_a_task_names_absolute_files_and_its_rows(rig):
    task = rig.task("w0")
    assert sum(piece.rows for piece in task.slices) == task.rows == 25
    assert all(piece.shard.startswith(str(rig.root / "data")) for piece in task.slices)
    assert task.training
    assert task.shuffle_seed is not None


def test_rows_before_counts_training_rows_leased_and_survives_a_return(rig):
    first, second = rig.task("w0"), rig.task("w1")
    assert (first.rows_before, second.rows_before) == (0, 25)
    rig.service.failed("w0", first.id, "no luck")
    assert rig.task("w0") == first
    assert rig.task("w0").rows_before == 50


def test_the_end_of_a_task_may_be_reported_twice(rig):
    task = rig.task("w0")
    for _ in range(2):
        assert rig.service.done("w0", task.id, 25, 1, 10.0).accepted
    assert rig.service.status().accounting.done == 25
    assert rig.service.status().workers[0].rows == 25


def test_a_wrong_number_of_rows_is_a_failure_and_the_task_returns(rig):
    task = rig.task("w0")
    answer = rig.service.done("w0", task.id, 24, 1, 10.0)
    assert not answer.accepted
    assert answer.note == "24 rows came through instead of 25"
    assert rig.task("w1").id == task.id
    assert rig.service.status().accounting.returned == 25
    assert "task-failed" in rig.kinds()


def test_after_three_failures_the_job_fails_naming_file_and_rows(rig):
    task = rig.task("w0")
    for attempt in range(3):
        assert rig.state().job == "running"
        rig.service.failed("w0", task.id, f"unexpected end of file ({attempt})")
        if attempt < 2:
            assert rig.task("w0").id == task.id
    state = rig.state()
    assert state.job == "failed"
    assert state.exit_code == EXIT_USER
    piece = task.slices[0]
    assert f"{piece.shard} rows {piece.start + 1}-" in state.reason
    assert "in 3 attempts; the last: unexpected end of file (2)" in state.reason
    assert rig.service.status().accounting.quarantined == 25


def test_a_lease_without_a_step_returns_after_the_first_step_deadline(rig):
    task = rig.task("w0")
    rig.pass_time(119, "s0", "w0", "w1")
    rig.service.progress("w1", rig.task("w1").id, 1, 1, 0.5)
    rig.pass_time(2, "s0", "w0", "w1")
    assert rig.task("w1").id == task.id
    accounting = rig.service.status().accounting
    assert (accounting.returned, accounting.repeated) == (25, 25)
    late = rig.service.done("w0", task.id, 25, 1, 1.0)
    assert not late.accepted
    assert late.note == f"task {task.id} is held by worker 1"


def test_steps_renew_all_leases_of_a_worker_and_mere_reports_do_not(rig):
    training, waiting = rig.task("w0"), rig.task("w0")
    for rows in range(1, 6):
        rig.pass_time(50, "s0", "w0", "w1")
        assert rig.service.progress("w0", training.id, rows, rows, 1.0).accepted
    assert rig.service.status().accounting.held == 50
    for _ in range(61):
        rig.pass_time(1, "s0", "w0", "w1")
        rig.service.progress("w0", training.id, 5, 5, 1.0)  # stuck at row 5
    assert not rig.service.progress("w0", training.id, 6, 6, 1.0).accepted
    assert rig.service.progress("w0", waiting.id, 1, 1, 1.0).accepted


def test_a_task_whose_leases_run_out_three_times_is_given_up_but_may_be_tried_again(tmp_path):
    rig = Rig(tmp_path, cluster={"deadlines": {"first_step": 60.0, "step": 60.0}})
    rig.assemble()
    for _ in range(3):
        stuck = rig.task("w0")
        rig.pass_time(59, "s0", "w0", "w1")
        other = rig.task("w1")
        rig.service.progress("w1", other.id, 1, 1, 1.0)
        rig.pass_time(2, "s0", "w0", "w1")
        rig.finish_task("w1", other)
    state = rig.state()
    assert state.job == "failed"
    assert state.exit_code == EXIT_TRY_AGAIN
    assert f"{stuck.slices[0].shard} rows" in state.reason
    assert "no first step in 60 s (cluster.deadlines.first_step)" in state.reason


def test_no_step_by_anybody_ends_the_job_and_names_the_workers(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    rig.service.progress("w0", rig.task("w0").id, 3, 3, 1.0)
    state = rig.pass_time(121, "s0", "w0", "w1")
    assert state.job == "failed"
    assert "no step by worker 0, worker 1 within 120 s" in state.reason


def test_a_worker_with_nothing_to_do_is_not_blamed_for_one_that_stands_still(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    rig.task("w1")
    while (lease := rig.service.lease("w0")).kind == "task":
        rig.finish_task("w0", lease.task)
    state = rig.pass_time(121, "s0", "w0", "w1")
    assert "no step by worker 1 within 120 s" in state.reason


def test_returned_without_blame(rig):
    tasks = {rig.task("w0").id, rig.task("w0").id}
    rig.service.release("w0")
    assert {rig.task("w1").id, rig.task("w1").id} == tasks
    assert rig.state().job == "running"
    assert "released" in rig.kinds()


def test_reports_on_tasks_that_are_not_held_are_refused_in_words(rig):
    task = rig.task("w0")
    assert rig.service.progress("w1", task.id, 1, 1, 1.0).note == (
        f"task {task.id} is held by worker 0"
    )
    assert rig.service.failed("w1", 999, "?").note == "there is no task 999"
    rig.service.release("w0")
    assert rig.service.done("w0", task.id, 25, 1, 1.0).note == (
        f"the lease of task {task.id} had ended (the task is waiting)"
    )


def test_an_evaluation_must_count_every_row(tmp_path):
    rig = Rig(tmp_path, cluster={"workers": 1})
    rig.assemble()
    for _ in range(4):
        rig.finish_task("w0", rig.task("w0"))
    lease = rig.service.lease("w0")
    assert lease.kind == "flush"
    rig.service.arrive("w0", lease.name)
    task = rig.task("w0")
    assert not task.training
    assert task.split == "test"
    assert rig.service.done("w0", task.id, 20, 1, 1.0).note == (
        "the evaluation came without its scores"
    )
    task = rig.task("w0")
    assert rig.service.done("w0", task.id, 20, 1, 1.0, scores(19)).note == (
        "19 scores were counted instead of 20"
    )


def test_order_is_shuffled_by_seed_and_epoch_or_kept(tmp_path):
    def order(name: str, **sections) -> list[int]:
        rig = Rig(tmp_path / name, **sections)
        rig.assemble()
        found = []
        for _ in range(4):
            task = rig.task("w0")
            found.append(task.slices[0].start + 1000 * ("00001" in task.slices[0].shard))
            rig.finish_task("w0", task)
        return found

    kept = order("kept", data={"shuffle": False})
    assert kept == sorted(kept)
    seeded = [order(f"seed-{seed}", job={"seed": seed}) for seed in range(6)]
    assert order("again", job={"seed": 3}) == seeded[3]
    assert len({tuple(found) for found in seeded}) > 1
    assert all(sorted(found) == kept for found in seeded)
