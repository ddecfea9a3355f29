"""What people and machines see of a job."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console

from fleetps.coordinator.reports import (
    Accounting,
    CheckpointStatus,
    EpochResult,
    Failure,
    ServerStatus,
    Status,
    WorkerStatus,
)
from fleetps.observe.display import JsonDisplay, PlainDisplay, make_display
from fleetps.observe.job_view import show_failure
from fleetps.observe.live import LiveDisplay, job_panel
from fleetps.observe.logs import message_of, set_up_logging
from fleetps.observe.news import News, Periodic
from fleetps.observe.results import print_table, results_table
from fleetps.observe.words import checkpoint_line, duration, epoch_line, progress_line


def worker(rank: int = 0) -> WorkerStatus:
    return WorkerStatus(
        rank=rank, address="h", state="running", rows=1234, rows_per_second=5678.9, loss=0.5,
        task=3, heartbeat_age=0.1, extra={},
    )  # fmt: skip


def epoch(number: int = 0) -> EpochResult:
    return EpochResult(
        epoch=number, train_rows=1000, train_loss=0.5, seconds=2.0, evaluated_rows=100,
        auc=0.71234, log_loss=0.61, calibration=1.0123,
    )  # fmt: skip


def status(**changes: object) -> Status:
    base = Status(
        name="quickstart", job="running", generation=0, phase="train",
        mode="async", epoch=0, epochs=2,
        rows_total=2000, rows_done=500, phase_rows_total=1000, phase_rows_done=500,
        rows_per_second=250.0, loss=0.512345, eta=6.0, seconds=12.0, workers=(worker(),),
        servers=(ServerStatus(rank=0, address="h:1", state="serving", heartbeat_age=0.1),),
        max_lead=None, workers_lost=0, losses=(), missing=(), history=(), loss_curve=(),
        accounting=Accounting(total=10, leased=12, done=7, held=3, returned=2, repeated=2,
                              waiting=0, quarantined=0),
        failure=None, reason="", exit_code=None, best_auc=0.8123, versions={},
    )  # fmt: skip
    return base.model_copy(update=changes)


def drawn(thing: object, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def plain() -> tuple[PlainDisplay, io.StringIO]:
    output = io.StringIO()
    return PlainDisplay(0, Console(file=output, width=110)), output


def test_durations() -> None:
    assert [duration(s) for s in (None, 5, 65.4, 3600)] == ["-", "0:05", "1:05", "1:00:00"]


def test_progress_in_a_line() -> None:
    line = progress_line(status())
    assert line == "epoch 1/2 train, 500 of 2,000 rows (25%), 250 rows/s, loss 0.5123, 0:06 left"


def test_progress_of_an_evaluation() -> None:
    line = progress_line(status(phase="evaluate", eta=None))
    assert "epoch 1/2 evaluate, 500 of 1,000 test rows" in line


def test_who_is_missing() -> None:
    assert progress_line(status(job="waiting", missing=("worker 1 (not registered)",))) == (
        "waiting for worker 1 (not registered)"
    )


def test_an_epoch_in_a_line() -> None:
    assert epoch_line(epoch(), 2) == (
        "epoch 1/2: AUC 0.7123, log loss 0.6100, calibration 1.012 (100 test rows); "
        "train loss 0.5000 (1,000 rows, 500 rows/s)"
    )


def test_an_epoch_without_evaluation() -> None:
    quiet = epoch().model_copy(update={"evaluated_rows": 0, "auc": None})
    assert epoch_line(quiet, 2).startswith("epoch 1/2: not evaluated; train loss")


def test_a_table_that_adds_up() -> None:
    text = drawn(results_table(status(job="done", history=(epoch(0), epoch(1)))))
    assert "quickstart: done after 0:12" in text
    assert text.count("0.7123") == 3  # two rows, and beside the best possible
    assert "best possible AUC on this data: 0.8123 (reached: 0.7123)" in text
    assert "10 in all tasks = 7 done + 3 in work + 0 waiting + 0 quarantined" in text
    assert "12 leased = 7 done + 3 in work + 2 returned; 2 leased again" in text


def test_lines_in_a_file_end_with_their_last_word() -> None:
    display, output = plain()
    members = status(workers=(worker(0), worker(1)), history=(epoch(0),))
    display.results(members)
    print_table(Console(file=output, width=110), job_panel(members))
    text = output.getvalue()
    assert "quickstart: running after 0:12\n" in text
    assert "  worker 1" in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_no_best_auc_for_real_data() -> None:
    assert "best possible" not in drawn(results_table(status(best_auc=None, history=(epoch(),))))


def test_the_plain_display_tells_each_epoch_once() -> None:
    display, output = plain()
    display.update(status())
    display.update(status(history=(epoch(0),)))
    display.update(status(history=(epoch(0),)))
    display.update(status(history=(epoch(0), epoch(1))))
    lines = output.getvalue().splitlines()
    assert [line[:10] for line in lines if "AUC" in line] == ["epoch 1/2:", "epoch 2/2:"]


def test_the_plain_display_leaves_text_alone() -> None:
    display, output = plain()
    path = "/a/[b]/" + "x" * 200
    display.note(path)
    assert output.getvalue() == path + "\n"


def test_lines_come_so_often_and_at_every_change() -> None:
    now = [0.0]
    periodic = Periodic(5, lambda: now[0])
    assert periodic.due(status(job="waiting"))
    assert not periodic.due(status(job="waiting"))
    assert periodic.due(status(job="running"))
    now[0] = 4.9
    assert not periodic.due(status(job="running"))
    now[0] = 5.1
    assert periodic.due(status(job="running"))


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = JsonDisplay(0)
    display.note("hello")
    display.update(status())
    display.update(status(history=(epoch(),), job="done"))
    display.results(status(history=(epoch(),), job="done"))
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record.get("event") for record in records] == [None, "progress", "epoch", "results"]
    assert records[1]["rows_done"] == 500
    assert records[1]["workers"][0]["rows_per_second"] == 5678.9
    assert records[2]["auc"] == 0.71234
    assert records[3]["accounting"]["leased"] == 12
    assert all(record["message"] and record["time"] for record in records)


def test_the_live_panel_has_a_line_per_worker() -> None:
    text = drawn(job_panel(status(workers=tuple(worker(rank) for rank in range(3)))))
    assert "500 of 2,000 rows" in text
    assert [f"worker {rank}" in text for rank in range(3)] == [True] * 3
    assert "5,679 rows/s" in text


def test_the_live_panel_sums_up_what_does_not_fit() -> None:
    text = drawn(job_panel(status(workers=tuple(worker(rank) for rank in range(100)))))
    assert "and 84 more workers" in text
    assert len(text.splitlines()) <= 20


def test_the_live_display_ends_with_the_table() -> None:
    output = io.StringIO()
    display = LiveDisplay(Console(file=output, force_terminal=True, width=110))
    display.update(status(history=(epoch(),)))
    display.results(status(job="done", history=(epoch(),)))
    display.close()
    assert "best possible AUC" in output.getvalue()
    assert output.getvalue().count("epoch 1/2: AUC") == 1


def test_no_terminal_no_live_display() -> None:
    assert isinstance(make_display("text", 1), PlainDisplay)
    assert isinstance(make_display("json", 1), JsonDisplay)


def test_a_failure_shows_the_last_lines_and_where_there_are_more() -> None:
    display, output = plain()
    failure = Failure(
        who="worker 1", reason="x", log_tail=("one", "two"), child_exit_code=-9, time="t"
    )
    show_failure(display, failure, Path("/runs/a/logs"))
    assert output.getvalue().splitlines() == [
        "the last lines of worker 1:",
        "  one",
        "  two",
        "logs of all processes: /runs/a/logs",
    ]


@pytest.fixture
def _logging_put_back() -> object:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers, root.level = before


@pytest.mark.usefixtures("_logging_put_back")
class TestLogs:
    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        set_up_logging("json", "worker-1")
        logging.getLogger("a.b").info("joined %s", "x", extra={"fields": {"rank": 1}})
        record = json.loads(capsys.readouterr().out)
        assert record["message"] == "joined x"
        assert record["role"] == "worker-1"
        assert record["logger"] == "a.b"
        assert record["level"] == "info"
        assert record["rank"] == 1

    def test_json_keeps_a_traceback_in_its_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        set_up_logging("json", "worker-1")
        try:
            int("no")
        except ValueError:
            logging.getLogger("a").exception("failed")
        record = json.loads(capsys.readouterr().out)
        assert "ValueError: invalid" in record["traceback"]

    def test_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        set_up_logging("text", "server-0")
        logging.getLogger("a").warning("late")
        assert capsys.readouterr().err.rstrip().endswith("WARNING server-0: late")

    def test_requests_are_not_news(self, capsys: pytest.CaptureFixture[str]) -> None:
        set_up_logging("text")
        logging.getLogger("httpx").info("GET /")
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("log_format", ["text", "json"])
    @pytest.mark.parametrize("role", ["coordinator", ""])
    def test_the_message_can_be_had_back(
        self, capsys: pytest.CaptureFixture[str], log_format: str, role: str
    ) -> None:
        set_up_logging(log_format, role)  # type: ignore[arg-type]
        logging.getLogger("a").error("port 1: in use")
        written = capsys.readouterr()
        assert message_of((written.out + written.err).rstrip()) == "port 1: in use"

    def test_a_foreign_line_is_its_own_message(self) -> None:
        assert message_of("Killed") == "Killed"
        assert message_of("12") == "12"


def test_each_lost_worker_is_told_once() -> None:
    news = News()
    first = status(workers_lost=2, losses=("worker 0: killed", "worker 1: killed"))
    assert news.losses(first) == first.losses
    assert news.losses(first) == ()
    # The status holds the last ones only.
    assert news.losses(status(workers_lost=3, losses=("a", "b"))) == ("b",)


def test_each_recovery_and_each_failed_checkpoint_is_told_once() -> None:
    news = News()
    failed = CheckpointStatus(failures=1, reason="the disk is full")
    first = status(recoveries=("server 0: killed; generation 1 begins",), checkpoint=failed)
    assert news.troubles(first) == (
        "server 0: killed; generation 1 begins", "a checkpoint failed: the disk is full"
    )  # fmt: skip
    assert news.troubles(first) == ()
    assert news.troubles(status(recoveries=("a", "b"))) == ("b",)


def test_a_slow_worker_and_a_job_that_stands_still() -> None:
    slow = worker().model_copy(update={"straggler": True, "step_seconds": 0.5})
    stalled = "no progress for 25 s: no step by worker 0"
    notices = ("worker 0: its steps take 0.5 s", f"coordinator: {stalled}")
    seen = status(workers=(slow,), stalled=stalled, notices=notices, notices_so_far=30)
    panel = drawn(job_panel(seen))
    assert stalled in panel
    assert "slow: 0.5 s for a batch" in panel
    news = News()
    assert news.troubles(status(notices=notices[:1], notices_so_far=29)) == notices[:1]
    assert news.troubles(seen) == notices[1:]
    assert news.troubles(seen) == ()


def test_skipped_rows_are_in_the_sum() -> None:
    rows = status().accounting.model_copy(update={"skipped": 5})
    assert "+ 0 quarantined + 5 skipped\n" in drawn(results_table(status(accounting=rows)))


def test_the_last_checkpoint_in_words() -> None:
    none = CheckpointStatus()
    assert checkpoint_line(none) == "no checkpoint yet"
    last = CheckpointStatus(number=3, rows=75_000, age=65.0, pause=1.25)
    said = "checkpoint 3: 75,000 rows, 1:05 ago, pause 1.2 s"
    assert checkpoint_line(last) == said
    failed = last.model_copy(update={"failures": 2, "reason": "the disk is full"})
    assert checkpoint_line(failed) == f"{said}; 2 failed since: the disk is full"
    assert said in drawn(job_panel(status(checkpoint=last)))


def test_the_live_panel_shows_leads_and_the_servers_rows() -> None:
    ahead = worker().model_copy(update={"lead": 12, "waited": 3.4})
    server = ServerStatus(
        rank=1, address="h:2", state="serving", heartbeat_age=0.1, rows={"embedding": 12345}
    )
    text = drawn(job_panel(status(mode="bounded", workers=(ahead,), servers=(server,))))
    assert "epoch 1/2 train (bounded)" in text
    assert "12 steps ahead, waited 3 s" in text
    assert "server 1  serving  12,345 rows in embedding" in text
