"""GET /metrics: the status in Prometheus' words; docs/coordinator.md lists names and meanings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from fleetps.coordinator.reports import (
    CheckpointStatus,
    EpochResult,
    JobPhase,
    MemberState,
    ServerStatus,
    Status,
    WorkerStatus,
)
from fleetps.coordinator.service import JobService


class Exposition:
    def __init__(self, service: JobService) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StatusCollector(service))

    def text(self) -> tuple[bytes, str]:
        encode, content_type = choose_encoder("")
        return encode(self._registry), content_type


class _StatusCollector(Collector):
    """Reads the status when it is scraped: nothing is counted twice, nothing costs in between."""

    def __init__(self, service: JobService) -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        status = self._service.status()
        yield from _identity(status)
        yield from _job(status)
        yield from _accounting(status)
        yield from _members(status)
        yield from _workers(status)
        yield from _servers(status)
        yield from _memory(status)
        yield from _events(status)
        if status.history:
            yield from _last_epoch(status.history[-1])


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield GaugeMetricFamily(f"fleetps_{name}", text, value=value)


def _identity(status: Status) -> Iterator[Metric]:
    info = GaugeMetricFamily("fleetps_job_info", "1; which job", labels=["name", "mode", "version"])
    info.add_metric([status.name, status.mode, status.versions["fleetps"]], 1.0)
    yield info
    wanted = GaugeMetricFamily("fleetps_members_wanted", "What the job is for", labels=["role"])
    for role, number in status.wanted.items():
        wanted.add_metric([role], number)
    yield wanted


def _job(status: Status) -> Iterator[Metric]:
    state = GaugeMetricFamily("fleetps_job_state", "1 for the present state", labels=["state"])
    for name in get_args(JobPhase):
        state.add_metric([name], float(name == status.job))
    yield state
    yield from _gauge("epoch", "The present epoch, from 0", status.epoch)
    yield from _gauge("epochs", "Epochs of the job", status.epochs)
    yield from _gauge("generation", "The present generation", status.generation)
    yield from _gauge("rows_to_train", "Training rows over all epochs", status.rows_total)
    yield from _gauge("rows_trained", "Of these, trained", status.rows_done)
    yield from _gauge("rows_per_second", "Rows a second, recent", status.rows_per_second)
    yield from _gauge("train_loss", "Mean loss, recent", status.loss)
    yield from _gauge("eta_seconds", "Seconds of training left", status.eta)
    yield from _gauge("job_seconds", "Seconds since the job began", status.seconds)
    stalled = "1: nothing has gone on for watch.no_progress seconds"
    yield from _gauge("stalled", stalled, float(bool(status.stalled)))
    yield from _checkpoint(status.checkpoint)
    yield from _gauge("max_lead", "The furthest a worker was ahead, in steps", status.max_lead)
    yield CounterMetricFamily(
        "fleetps_workers_lost", "Workers that died while the job went on", status.workers_lost
    )


def _checkpoint(last: CheckpointStatus) -> Iterator[Metric]:
    failures = "Attempts to take a checkpoint that failed since the last one"
    yield from _gauge("checkpoint_failures", failures, last.failures)
    if not last.number:
        return
    yield from _gauge("checkpoint_number", "Number of the last checkpoint", last.number)
    yield from _gauge("checkpoint_age_seconds", "Seconds since the last checkpoint", last.age)
    yield from _gauge("checkpoint_rows", "Training rows that it holds", last.rows)
    pause = "Seconds for which nobody trained"
    yield from _gauge("checkpoint_pause_seconds", pause, last.pause)
    drain = "Seconds before that in which some had nothing to do"
    yield from _gauge("checkpoint_drain_seconds", drain, last.drain)


def _accounting(status: Status) -> Iterator[Metric]:
    rows = status.accounting
    text = "Rows of tasks by what became of their leases"
    leases = CounterMetricFamily("fleetps_lease_rows", text, labels=["outcome"])
    for outcome in ("leased", "returned", "repeated"):
        leases.add_metric([outcome], getattr(rows, outcome))
    yield leases
    tasks = GaugeMetricFamily("fleetps_task_rows", "Rows of tasks by state", labels=["state"])
    for state in ("done", "held", "waiting", "quarantined", "skipped"):
        tasks.add_metric([state], getattr(rows, state))
    yield tasks


def _members(status: Status) -> Iterator[Metric]:
    members = GaugeMetricFamily("fleetps_members", "Members by state", labels=["role", "state"])
    for role, found in (("server", status.servers), ("worker", status.workers)):
        for state in get_args(MemberState):
            members.add_metric([role, state], sum(member.state == state for member in found))
    yield members
    age = GaugeMetricFamily(
        "fleetps_heartbeat_age_seconds",
        "Seconds since a member was heard of",
        labels=["role", "rank"],
    )
    for role, member in _all(status):
        age.add_metric([role, str(member.rank)], member.heartbeat_age)
    yield age


def _workers(status: Status) -> Iterator[Metric]:
    rows = CounterMetricFamily("fleetps_worker_rows", "Training rows reported", labels=["rank"])
    speed = GaugeMetricFamily("fleetps_worker_rows_per_second", "Rows a second", labels=["rank"])
    lead = GaugeMetricFamily(
        "fleetps_worker_lead", "Steps ahead of the slowest that is waited for", labels=["rank"]
    )
    waited = CounterMetricFamily(
        "fleetps_worker_waited_seconds", "Waited for slower workers", labels=["rank"]
    )
    step = GaugeMetricFamily(
        "fleetps_worker_step_seconds", "A training thread's batch, recent", labels=["rank"]
    )
    idle = GaugeMetricFamily(
        "fleetps_worker_idle_ratio", "Of that, waiting for servers, group or core", labels=["rank"]
    )
    slow = GaugeMetricFamily(
        "fleetps_worker_straggler", "1: it takes much longer than the others", labels=["rank"]
    )
    loss = GaugeMetricFamily("fleetps_worker_train_loss", "Its mean loss, recent", labels=["rank"])
    rate = GaugeMetricFamily(
        "fleetps_worker_learning_rate", "Of the dense weights", labels=["rank"]
    )
    norm = GaugeMetricFamily(
        "fleetps_worker_gradient_norm", "Of a batch, over all dense weights", labels=["rank"]
    )
    for worker in status.workers:
        rank = [str(worker.rank)]
        slow.add_metric(rank, float(worker.straggler))
        rows.add_metric(rank, worker.rows)
        speed.add_metric(rank, worker.rows_per_second)
        waited.add_metric(rank, worker.waited)
        for metric, value in (
            (step, worker.step_seconds),
            (idle, worker.idle),
            (lead, worker.lead),
            (loss, worker.loss),
            (rate, worker.extra.get("learning_rate")),
            (norm, worker.extra.get("gradient_norm")),
        ):
            if value is not None:
                metric.add_metric(rank, value)
    yield from (rows, speed, step, idle, slow, lead, waited, loss, rate, norm)


def _servers(status: Status) -> Iterator[Metric]:
    rows = GaugeMetricFamily(
        "fleetps_server_rows", "Rows that a server holds", labels=["rank", "table"]
    )
    for server in status.servers:
        for table, count in server.rows.items():
            rows.add_metric([str(server.rank), table], count)
    yield rows


def _memory(status: Status) -> Iterator[Metric]:
    labels = ["role", "rank"]
    used = GaugeMetricFamily(
        "fleetps_member_memory_bytes", "Resident memory of a member's Paddle process", labels=labels
    )
    limit = GaugeMetricFamily(
        "fleetps_member_memory_limit_bytes", "Of its control group or machine", labels=labels
    )
    for role, member in _all(status):
        rank = [role, str(member.rank)]
        if member.memory.used is not None:
            used.add_metric(rank, member.memory.used)
        if member.memory.limit is not None:
            limit.add_metric(rank, member.memory.limit)
    yield from (used, limit)


def _events(status: Status) -> Iterator[Metric]:
    events = CounterMetricFamily("fleetps_events", "Events by kind", labels=["kind"])
    for kind, number in status.events.items():
        events.add_metric([kind], number)
    yield events


def _all(status: Status) -> Iterator[tuple[str, ServerStatus | WorkerStatus]]:
    for role, found in (("server", status.servers), ("worker", status.workers)):
        for member in found:
            yield role, member


def _last_epoch(result: EpochResult) -> Iterator[Metric]:
    yield from _gauge("evaluation_auc", "AUC of the last evaluation", result.auc)
    yield from _gauge("evaluation_log_loss", "Log loss of the last evaluation", result.log_loss)
    yield from _gauge("evaluation_calibration", "Sum of p / sum of labels", result.calibration)
    yield from _gauge("evaluation_rows", "Rows of the last evaluation", result.evaluated_rows)
