"""Who may join, with what rank, and what happens when somebody does not come or goes."""

import pytest
from coordinator_rig import Rig

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER, TryAgain, UserError


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path, cluster={"servers": 2, "workers": 2, "heartbeat": 2.0})


def test_ranks_are_given_in_order_and_kept_for_an_instance(rig):
    assert [rig.register("server", name) for name in ("a", "b")] == [0, 1]
    assert [rig.register("worker", name) for name in ("c", "d")] == [0, 1]
    assert rig.register("worker", "c") == 0


def test_a_given_rank_is_given_and_the_gap_is_filled_later(rig):
    assert rig.register("server", "a", rank=1) == 1
    assert rig.register("server", "b") == 0


def test_a_rank_of_a_live_member_is_refused_and_the_holder_named(rig):
    rig.register("worker", "first", rank=1)
    with pytest.raises(
        TryAgain, match=r"worker rank 1 is taken by 10\.0\.0\.9 \(instance 'first'\)"
    ):
        rig.register("worker", "second", rank=1)


def test_more_workers_than_expected_may_come_but_not_more_servers(rig):
    assert [rig.register("worker", f"w{i}") for i in range(4)] == [0, 1, 2, 3]
    rig.register("server", "a")
    rig.register("server", "b")
    with pytest.raises(TryAgain, match=r"has one died that is not missed yet"):
        rig.register("server", "c")
    rig.pass_time(10, "a", "b")
    with pytest.raises(UserError, match=r"has no place: the job has 2 servers"):
        rig.register("server", "c")


def test_two_servers_cannot_share_an_endpoint(rig):
    digest = rig.job.digest()
    rig.service.register("server", "a", "127.0.0.1:6000", None, digest)
    for error in (TryAgain, UserError):
        with pytest.raises(error, match=r"both give the address 127\.0\.0\.1:6000"):
            rig.service.register("server", "b", "127.0.0.1:6000", None, digest)
        rig.pass_time(10, "a")


def test_another_job_file_is_refused_and_what_differs_is_named(rig):
    theirs = {**rig.job.agreement(), "data.batch_size": 99}
    with pytest.raises(UserError, match=r"data\.batch_size is 99 there, 512 here"):
        rig.service.register("worker", "w", "10.0.0.9", None, "other", theirs)
    with pytest.raises(UserError, match="another job than the coordinator"):
        rig.service.register("worker", "w", "10.0.0.9", None, "other")


def test_an_unknown_instance_is_told_to_start_again(rig):
    with pytest.raises(TryAgain, match="does not know instance 'nobody'"):
        rig.service.heartbeat("nobody", "running")


def test_only_workers_get_work(rig):
    rig.register("server", "a")
    with pytest.raises(UserError, match="server 0 asked for work"):
        rig.service.lease("a")


def test_endpoints_come_when_all_servers_have_registered_and_work_when_all_serve(rig):
    rig.register("server", "second", rank=1)
    rig.register("worker", "w")
    rig.register("worker", "v")
    first = rig.service.rendezvous("w")
    assert first.servers == ()
    assert first.missing == (
        "server 0 (not registered)",
        "server 1 (10.0.0.6:second, registered, not serving)",
    )
    rig.register("server", "first", rank=0)
    registered = rig.service.rendezvous("w")
    assert not registered.complete
    assert [address.split(":")[1] for address in registered.servers] == ["first", "second"]
    assert rig.service.lease("w").kind == "wait"
    rig.service.heartbeat("first", "serving")
    rig.service.heartbeat("second", "serving")
    complete = rig.service.rendezvous("w")
    assert complete.complete
    assert complete.missing == ()
    assert complete.workers == 2
    assert rig.service.lease("w").kind == "task"


def test_the_rendezvous_deadline_names_the_missing(rig):
    rig.register("server", "a", rank=0)
    rig.register("worker", "w", rank=0)
    assert rig.pass_time(59, "a", "w").job == "waiting"
    state = rig.pass_time(2, "a", "w")
    assert state.job == "failed"
    assert state.exit_code == EXIT_TRY_AGAIN
    assert "server 1, worker 1 did not register within 60 s" in state.reason
    assert "cluster.deadlines.rendezvous" in state.reason


def test_worker_0_is_waited_for_however_many_others_there_are(rig):
    for rank in (0, 1):
        rig.register("server", f"s{rank}", rank=rank)
    rig.register("worker", "w", rank=1)
    rig.register("worker", "x", rank=9)
    assert rig.service.rendezvous("w").missing[0] == "worker 0 (not registered)"


def test_a_server_that_registers_but_does_not_serve_is_named(rig):
    for name in ("a", "b"):
        rig.register("server", name)
    for name in ("w", "v"):
        rig.register("worker", name)
    rig.service.heartbeat("a", "serving")
    state = rig.pass_time(61, "a", "b", "w", "v")
    assert state.job == "failed"
    assert "server 1 (10.0.0.1:b) registered but did not serve within 60 s" in state.reason


def test_a_silent_server_ends_a_job_without_generations_and_is_named(tmp_path):
    rig = Rig(tmp_path, cluster={"servers": 2, "generations": 0})
    rig.assemble()
    others = ("s0", "w0", "w1")
    assert rig.pass_time(10, *others).job == "running"
    state = rig.pass_time(1, *others)
    assert state.job == "failed"
    assert state.reason.startswith("server 1: not heard of for 11 s")
    assert state.exit_code == EXIT_TRY_AGAIN


def test_the_first_failure_wins_and_keeps_the_log(rig):
    rig.assemble()
    rig.service.fail("w1", "the data is broken", ["last line"], exit_code=2)
    rig.service.fail("s0", "crashed because of it", [], exit_code=-11)
    status = rig.service.status()
    assert status.failure is not None
    assert (status.failure.who, status.failure.reason) == ("worker 1", "the data is broken")
    assert status.failure.log_tail == ("last line",)
    assert rig.service.heartbeat("w0", "running").reason == "worker 1: the data is broken"
    assert status.exit_code == EXIT_USER


@pytest.mark.parametrize("code", [None, -9, -11, 1, 75, 0])
def test_a_server_that_did_not_end_by_the_users_mistake_may_be_tried_again(rig, code):
    rig.assemble()
    assert rig.service.fail("s0", "it ended", exit_code=code).exit_code == EXIT_TRY_AGAIN


def test_a_server_that_leaves_early_is_a_failure(tmp_path):
    rig = Rig(tmp_path, cluster={"generations": 0})
    rig.assemble()
    state = rig.service.heartbeat("s0", "exited")
    assert state.job == "failed"
    assert state.reason == "server 0: ended before the job was done"


def test_a_worker_that_leaves_gives_its_rank_to_the_next(rig):
    rig.assemble()
    task = rig.task("w0")
    rig.service.heartbeat("w0", "exited")
    assert rig.service.lease("w0").kind == "stop"
    assert rig.register("worker", "replacement") == 0
    assert rig.task("replacement").id == task.id
    assert rig.state().job == "running"


def test_who_has_left_does_not_come_back_by_a_late_heartbeat(rig):
    rig.assemble()
    rig.service.heartbeat("w0", "exited")
    rig.service.heartbeat("w0", "running")
    assert rig.service.lease("w0").kind == "stop"
    assert rig.register("worker", "replacement") == 0


def test_who_dies_after_the_end_is_noted_and_not_waited_for(rig):
    rig.assemble()
    rig.service.stop("Ctrl-C")
    for name in ("s0", "s1", "w0"):
        rig.service.heartbeat(name, "exited")
    assert not rig.service.ended()
    assert rig.pass_time(11).reason == "Ctrl-C"
    assert rig.service.ended()
    assert [e.who for e in rig.service.events().events if e.kind == "lost"] == ["worker 1"]


def test_a_stop_reaches_everybody(rig):
    rig.assemble()
    rig.service.stop("Ctrl-C")
    for name in ("s0", "s1", "w0", "w1"):
        state = rig.service.heartbeat(name, "running" if name[0] == "w" else "serving")
        assert (state.job, state.reason, state.exit_code) == ("stopping", "Ctrl-C", 143)
    assert rig.service.lease("w0").kind == "stop"
    for name in ("s0", "s1", "w0", "w1"):
        assert not rig.service.ended()
        rig.service.heartbeat(name, "exited")
    assert rig.service.ended()
    assert rig.state().job == "stopping"


def test_a_member_that_does_not_leave_is_not_waited_for_for_ever(rig):
    rig.assemble()
    rig.service.stop("Ctrl-C")
    rig.pass_time(19, "s0", "s1", "w0", "w1")
    assert not rig.service.ended()
    rig.pass_time(2, "s0", "s1", "w0", "w1")
    assert rig.service.ended()
