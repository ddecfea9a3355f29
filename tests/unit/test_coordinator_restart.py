"""A coordinator started again goes on where it was, or begins anew and overwrites nothing."""

import json
import sqlite3

import pytest
from coordinator_rig import Rig, make_job, work

from fleet_config.errors import TryAgain, UserError
from fleetps.coordinator.result import Result
from fleetps.coordinator.service import JobService


def test_it_goes_on_with_members_leases_barriers_and_sums(tmp_path):
    rig = Rig(tmp_path, job={"epochs": 2})
    rig.assemble()
    rig.finish_task("w0", rig.task("w0"))
    held = rig.task("w1")
    rig.service.arrive("w0", "dense-initialised")
    before = rig.service.status()
    rig.clock.advance(500)
    rig.restart()

    after = rig.service.status()
    assert after.accounting == before.accounting
    assert [w.rows for w in after.workers] == [25, 0]
    assert rig.service.arrived("dense-initialised").ranks == (0,)
    assert rig.beat().job == "running"  # nobody is blamed for the time it was away
    rig.finish_task("w1", held)
    work(rig.service, "w0", "w1")
    rig.check_accounting()
    assert rig.service.status().accounting.done == 2 * 120
    assert rig.service.status().accounting.repeated == 0
    assert "restarted" in rig.kinds()


def test_the_whole_job_may_run_with_a_restart_before_every_call(tmp_path):
    rig = Rig(tmp_path, job={"epochs": 2})
    rig.assemble()
    for _ in range(100):
        for worker in ("w0", "w1"):
            rig.restart()
            lease = rig.service.lease(worker)
            rig.restart()
            if lease.kind == "task":
                rig.finish_task(worker, lease.task)
            elif lease.kind == "flush":
                rig.service.arrive(worker, lease.name)
        if lease.kind == "finish":
            break
    rig.restart()
    assert [result.auc for result in rig.service.status().history] == [1.0, 1.0]
    rig.check_accounting()


def test_events_are_in_the_file_once_and_in_order(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    file = rig.job.run_dir / "events.jsonl"
    whole = file.read_text()
    cut = whole.rstrip("\n").rpartition("\n")[0] + "\n" + whole[-20:].rstrip("\n")
    file.write_text(cut)  # as after a power cut
    rig.restart()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["id"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["kind"] for line in lines] == rig.kinds()
    assert lines[0].keys() == {"id", "time", "kind", "who", "text"}
    assert lines[0]["time"].endswith("+00:00")
    assert rig.service.events(after=len(lines)).events == ()
    assert len(rig.service.events(after=2).events) == len(lines) - 2


def test_a_new_server_takes_the_place_of_one_that_has_not_come_back(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    rig.restart()
    assert rig.register("server", "other") == 0
    rig.service.tick()
    assert rig.texts("generation")[0].startswith("was started again at 10.0.0.5:other")
    assert rig.state().generation == 1


def test_but_not_of_one_that_has(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    rig.restart()
    rig.beat("s0")
    with pytest.raises(TryAgain, match="has no place"):
        rig.register("server", "other")
    rig.pass_time(10, "s0")
    with pytest.raises(UserError, match="has no place: the job has 1 server "):
        rig.register("server", "other")


@pytest.mark.parametrize("how", ["finished", "failed", "new", "other job"])
def test_a_run_that_is_not_to_be_gone_on_with_is_set_aside(tmp_path, how):
    rig = Rig(tmp_path)
    rig.assemble()
    if how == "finished":
        work(rig.service, "w0", "w1")
        rig.service.heartbeat("w0", "exited")
        rig.service.heartbeat("w1", "exited")
    elif how == "failed":
        rig.service.fail("s0", "broken")
    elif how == "other job":
        rig.job = make_job(tmp_path, job={"seed": 7})
    state = rig.job.run_dir / "coordinator.sqlite"
    rig.restart(new=how == "new")

    assert rig.kinds() == ["created"]
    assert rig.state().job == "waiting"
    previous = list(rig.job.run_dir.glob("previous-*"))
    assert len(previous) == 1
    kept = {file.name for file in previous[0].iterdir()}
    assert {"coordinator.sqlite", "events.jsonl"} <= kept
    assert ("result.json" in kept) == (how == "finished")
    assert not (rig.job.run_dir / "result.json").exists()
    assert state.exists()
    rig.restart(new=True)
    assert len(list(rig.job.run_dir.glob("previous-*"))) == 2


@pytest.mark.parametrize("state", ["done", "failed", "stopping"])
def test_killed_in_its_last_seconds_it_does_not_begin_anew(tmp_path, state):
    rig = Rig(tmp_path, checkpoint={"every": {"epochs": 1}})
    rig.assemble()
    rig.work("w0", "w1")
    if state == "done":
        rig.service.heartbeat("w0", "exited")
        rig.service.heartbeat("w1", "exited")
    elif state == "failed":
        rig.service.fail("s0", "broken", exit_code=2)
    else:
        rig.service.stop("enough")
    before = rig.state()
    rig.restart(restarted=True)
    assert rig.beat("s0") == before
    assert before.job == state
    assert rig.texts("restarted") == [f"the job is {state}, and stays so"]
    assert (rig.job.run_dir / "result.json").exists() == (state == "done")
    rig.service.heartbeat("s0", "exited")
    rig.service.heartbeat("w0", "exited")
    rig.service.heartbeat("w1", "exited")
    assert rig.service.ended()


def test_while_the_job_runs_it_goes_on_as_ever(tmp_path):
    rig = Rig(tmp_path)
    rig.restart(restarted=True)
    rig.assemble()
    rig.restart(restarted=True)
    rig.beat("s0", "w0", "w1")
    work(rig.service, "w0", "w1")
    assert rig.service.status().accounting.done == 120
    rig.check_accounting()


def test_a_result_that_found_no_room_is_written_when_there_is_some(tmp_path, monkeypatch):
    rig = Rig(tmp_path)
    rig.assemble()
    work(rig.service, "w0", "w1")
    rig.service.heartbeat("w0", "exited")

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", full)
        with pytest.raises(TryAgain, match="No space left on device"):
            rig.service.heartbeat("w1", "exited")
    result = rig.job.run_dir / "result.json"
    assert not result.exists()
    rig.restart(again=True)
    assert rig.state().job == "done"
    assert json.loads(result.read_text())["accounting"]["done"] == 120


def test_a_damaged_state_file_is_named_with_the_mend(tmp_path):
    rig = Rig(tmp_path)
    rig.service.close()
    state = rig.job.run_dir / "coordinator.sqlite"
    state.write_bytes(b"this is no database, " * 500)
    with pytest.raises(UserError, match=r"coordinator\.sqlite: .* damaged .*move it away"):
        rig.start()
    rig.service = JobService(rig.job, rig.dataset, again=True)  # by a launcher, for example
    assert rig.kinds() == ["created"]
    assert list(rig.job.run_dir.glob("previous-*/coordinator.sqlite"))


def test_a_damaged_page_is_found(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    for _ in range(300):
        rig.service.arrive("w0", f"barrier-{_}")
    rig.service.close()
    state = rig.job.run_dir / "coordinator.sqlite"
    data = bytearray(state.read_bytes())
    data[5000:20000] = b"\xff" * 15000
    state.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"damaged"):
        rig.start()


def test_the_state_of_another_version_is_refused(tmp_path):
    rig = Rig(tmp_path)
    rig.service.close()
    with sqlite3.connect(rig.job.run_dir / "coordinator.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UserError, match="has version 99 and this FleetPS reads version 4"):
        rig.start()


def test_a_run_directory_that_cannot_be_made_is_named(tmp_path):
    rig = Rig(tmp_path)
    (tmp_path / "file").write_text("")
    job = make_job(tmp_path, job={"output": str(tmp_path / "file")})
    with pytest.raises(UserError, match=r"set job\.output to a directory that can be written"):
        JobService(job, rig.dataset)


def test_a_failed_transaction_changes_nothing(tmp_path, monkeypatch):
    rig = Rig(tmp_path)
    rig.assemble()
    task = rig.task("w0")
    before = rig.service.status().accounting
    store = rig.service._store

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "record_done", full)
        with pytest.raises(TryAgain, match="database or disk is full"):
            rig.finish_task("w0", task)
        patch.setattr(store, "grant", full)
        with pytest.raises(TryAgain, match="database or disk is full"):
            rig.service.lease("w1")
    assert rig.service.status().accounting == before
    rig.finish_task("w0", task)
    work(rig.service, "w0", "w1")
    rig.check_accounting()
