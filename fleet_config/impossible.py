"""Settings that are right one by one and can't be together: a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_config.explain import Problem, listed
from fleet_config.modes import BoundedMode, SyncMode
from fleet_config.section import AUTO
from fleet_config.tables import NaiveRule, Table

if TYPE_CHECKING:
    from fleet_config.job import Job


def impossible(job: Job) -> Iterator[Problem]:
    """What can't be in a job whose sections are each right."""
    yield from _schedule(job)
    yield from _modes(job)
    for name, table in job.tables.items():
        yield from _table(job, name, table)
        if "geo" in job.mode_names:
            yield from _geo_table(name, table)
    yield from _evaluation(job)
    yield from _deadlines(job)
    yield from _checkpoint(job)
    yield from _watch(job)
    yield from _hosts(job)


def _schedule(job: Job) -> Iterator[Problem]:
    if not isinstance(job.mode, tuple):
        return
    epochs = [stage.epochs for stage in job.mode]
    if epochs == [None]:
        return
    for index, count in enumerate(epochs):
        if count is None:
            key = f"mode.{index}.epochs"
            yield Problem(
                ("mode", str(index)), f"{key} is missing; each stage of a schedule needs it"
            )
    if None not in epochs and sum(filter(None, epochs)) != job.job.epochs:
        yield Problem(
            ("mode",),
            f"the stages of mode last {sum(filter(None, epochs))} epochs together but job.epochs "
            f"is {job.job.epochs}; make them equal",
        )


def _modes(job: Job) -> Iterator[Problem]:
    if "geo" in job.mode_names and len(job.mode_names) > 1:
        others = listed(sorted(job.mode_names - {"geo"}))
        yield Problem(
            ("mode",),
            f"geo can't be combined with {others} in one job, as its tables are laid out "
            "differently; use one or the other",
        )
    strict = {stage.mode.strict for stage in job.stages if isinstance(stage.mode, SyncMode)}
    if len(strict) > 1:
        yield Problem(
            ("mode",),
            "sync is both strict and not in this schedule; make its stages alike",
        )
    if "sync" in job.mode_names and job.cluster.threads > 1:
        yield Problem(
            ("cluster", "threads"),
            f"mode sync needs cluster.threads: 1, not {job.cluster.threads}, as the workers "
            "average their gradients one step at a time; use more workers",
        )
    for stage in job.stages:
        mode = stage.mode
        if isinstance(mode, BoundedMode) and mode.staleness < job.cluster.threads:
            yield Problem(
                ("mode",),
                f"staleness ({mode.staleness}) must be at least cluster.threads "
                f"({job.cluster.threads}), the steps that a worker makes at once; raise it",
            )
    if job.optimizer.accumulate > 1 and job.cluster.threads > 1:
        yield Problem(
            ("optimizer", "accumulate"),
            f"optimizer.accumulate ({job.optimizer.accumulate}) needs cluster.threads: 1, not "
            f"{job.cluster.threads}: threads that add to the same sums at once lose some of it; "
            "use more workers",
        )
    if "geo" in job.mode_names and job.optimizer.accumulate > 1:
        yield Problem(
            ("optimizer", "accumulate"),
            f"optimizer.accumulate ({job.optimizer.accumulate}) is not for mode geo, which "
            "exchanges what many batches have changed; remove it and raise mode.steps",
        )
    if "geo" in job.mode_names and job.data.task_rows != AUTO:
        yield Problem(
            ("data", "task_rows"),
            f"data.task_rows ({job.data.task_rows}) is not for mode geo, which exchanges after "
            "each task and so cuts tasks of mode.steps batches; remove it",
        )


def _table(job: Job, name: str, table: Table) -> Iterator[Problem]:
    shards = job.table_shards(name)
    servers = job.cluster.servers
    if shards % servers:
        yield Problem(
            ("tables", name, "shards"),
            f"table {name} has {shards} shards for {servers} servers, so some would hold more "
            f"rows than others, or none; use a multiple of {servers}, or auto",
        )
    admission = table.admission
    if admission.threshold and not (admission.show_weight or admission.click_weight):
        yield Problem(
            ("tables", name, "admission", "threshold"),
            f"no row of table {name} would ever reach admission.threshold with both show_weight "
            "and click_weight 0; raise one of them",
        )
    strict = any(isinstance(stage.mode, SyncMode) and stage.mode.strict for stage in job.stages)
    if strict and job.cluster.workers > 1 and not isinstance(table.rule, NaiveRule):
        yield Problem(
            ("tables", name, "rule"),
            f"mode sync with strict: true needs rule: {{name: naive}} in table {name}: "
            f"{table.rule.name} makes a step for each worker's push, so {job.cluster.workers} "
            "workers would not learn what one does; use naive, or strict: false",
        )
    if admission.threshold and strict:
        yield Problem(
            ("tables", name, "admission", "threshold"),
            f"tables.{name}.admission.threshold is not for mode sync with strict: true, as the "
            "gradients that new factors get would depend on whose push made them; remove one of "
            "the two",
        )
    if table.eviction and table.eviction.every_epochs > job.job.epochs:
        yield Problem(
            ("tables", name, "eviction", "every_epochs"),
            f"tables.{name}.eviction.every_epochs is {table.eviction.every_epochs} but the job "
            f"ends after {job.job.epochs} epochs, so nothing would be deleted; use eviction: null "
            "to mean that",
        )


def _geo_table(name: str, table: Table) -> Iterator[Problem]:
    wanted = {
        "admission.threshold": table.admission.threshold > 0,
        "eviction": table.eviction is not None,
        "delta_threshold": table.delta_threshold > 0,
    }
    for key, given in wanted.items():
        if given:
            full = f"tables.{name}.{key}"
            yield Problem(
                tuple(full.split(".")),
                f"{full} is not for mode geo, whose tables don't count shows and clicks; remove it",
            )


def _evaluation(job: Job) -> Iterator[Problem]:
    if job.evaluate.every_epochs > job.job.epochs:
        yield Problem(
            ("evaluate", "every_epochs"),
            f"evaluate.every_epochs is {job.evaluate.every_epochs} but the job ends after "
            f"{job.job.epochs} epochs, so it would never evaluate; use 0 to mean never",
        )


def _deadlines(job: Job) -> Iterator[Problem]:
    deadlines = job.cluster.deadlines
    if deadlines.first_step < deadlines.step:
        yield Problem(
            ("cluster", "deadlines", "first_step"),
            f"cluster.deadlines.first_step ({deadlines.first_step:g} s) must not be shorter than "
            f"cluster.deadlines.step ({deadlines.step:g} s)",
        )


def _checkpoint(job: Job) -> Iterator[Problem]:
    wanted = job.checkpoint
    if wanted.warm_start and isinstance(wanted.resume, Path):
        yield Problem(
            ("checkpoint", "warm_start"),
            "a job goes on from checkpoint.resume or begins with the weights of "
            "checkpoint.warm_start; remove one of the two",
        )
    epochs = wanted.every.epochs
    if epochs and epochs > job.job.epochs:
        yield Problem(
            ("checkpoint", "every", "epochs"),
            f"checkpoint.every.epochs is {epochs} but the job ends after {job.job.epochs} epochs, "
            "so it would make no checkpoint; use null to mean that",
        )


def _watch(job: Job) -> Iterator[Problem]:
    if job.watch.on_nan == "skip_task" and job.cluster.generations == 0:
        yield Problem(
            ("watch", "on_nan"),
            "watch.on_nan: skip_task needs cluster.generations of at least 1, as the job goes on "
            "from its last checkpoint then; raise it, or use stop",
        )


def _hosts(job: Job) -> Iterator[Problem]:
    marked = [index for index, host in enumerate(job.hosts) if host.coordinator]
    if len(marked) > 1:
        yield Problem(
            ("hosts", str(marked[1]), "coordinator"),
            f"hosts.{marked[0]} and hosts.{marked[1]} both have coordinator: true; a job has one",
        )
    places = [(host.address, host.port, host.directory) for host in job.hosts]
    for index, place in enumerate(places):
        first = places.index(place)
        if first != index:
            yield Problem(
                ("hosts", str(index)),
                f"hosts.{index} is the same directory of the same host as hosts.{first}; add its "
                "servers and workers there",
            )
