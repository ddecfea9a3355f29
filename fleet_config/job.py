"""The job file: one YAML for every process of a job.

    job = load_job("conf/quickstart.yaml", ["cluster.workers=4"])

A mistake in it is a UserError with one line per mistake, each naming the file and line (or the
--set argument), the key and the nearest name that exists.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidationError

from fleet_config.errors import UserError
from fleet_config.explain import Problem, explain
from fleet_config.impossible import impossible
from fleet_config.modes import AsyncMode, Mode, ModeOrSchedule, Stage
from fleet_config.optimizers import Adam, Optimizer
from fleet_config.section import AUTO, Section
from fleet_config.sections import (
    CheckpointSection,
    ClusterSection,
    DataSection,
    EvaluateSection,
    Host,
    JobSection,
    ModelSection,
    ObserveSection,
    TableName,
    WatchSection,
)
from fleet_config.source import Source, read_source
from fleet_config.tables import Table, table_shards

DEFAULT_TABLE = "embedding"

# Free to differ between the processes of one job: how many, how patient, what people see.
_MAY_DIFFER: dict[str, set[str] | bool] = {
    "job": {"output"},
    "cluster": {"workers", "threads", "heartbeat", "restarts", "generations", "deadlines"},
    "checkpoint": True,
    "watch": True,
    "observe": True,
    "hosts": True,
}


class Job(Section):
    """A checked job file."""

    job: JobSection
    cluster: ClusterSection = ClusterSection()
    data: DataSection
    model: ModelSection = ModelSection()
    tables: dict[TableName, Table] = Field(
        default_factory=lambda: {DEFAULT_TABLE: Table()}, min_length=1
    )
    optimizer: Optimizer = Adam()
    mode: ModeOrSchedule = AsyncMode()
    evaluate: EvaluateSection = EvaluateSection()
    checkpoint: CheckpointSection = CheckpointSection()
    watch: WatchSection = WatchSection()
    observe: ObserveSection = ObserveSection()
    # A YAML list is no tuple, which a strict model would mind.
    hosts: Annotated[tuple[Host, ...], Field(strict=False)] = ()

    @property
    def run_dir(self) -> Path:
        """Where everything this job writes goes."""
        return self.job.output / self.job.name

    @property
    def checkpoint_dir(self) -> Path:
        """Where its checkpoints are."""
        return self.checkpoint.path or self.run_dir / "checkpoints"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The modes in their order, each with its number of epochs."""
        if isinstance(self.mode, tuple) and len(self.mode) > 1:
            return self.mode
        mode = self.mode[0].mode if isinstance(self.mode, tuple) else self.mode
        return (Stage(mode=mode, epochs=self.job.epochs),)

    @property
    def mode_names(self) -> frozenset[str]:
        """The names of all modes of the job."""
        return frozenset(stage.mode.name for stage in self.stages)

    def mode_of(self, epoch: int) -> Mode:
        """The mode of an epoch, the first of which is 0."""
        left = epoch
        for stage in self.stages:
            left -= stage.epochs or 0
            if left < 0:
                return stage.mode
        raise IndexError(f"epoch {epoch} of {self.job.epochs}")

    def table_shards(self, name: str) -> int:
        """The number of shards of a table, the same on every machine."""
        shards = self.tables[name].shards
        if shards == AUTO:
            return table_shards(self.cluster.servers, self.cluster.server_cores)
        return shards

    def agreement(self) -> dict[str, JsonValue]:
        """What must be the same in all processes, as flat keys: {"data.batch_size": 512, ...}."""
        return dict(_flat(self.model_dump(mode="json", exclude=_MAY_DIFFER), ""))

    def digest(self) -> str:
        """A short fingerprint of agreement()."""
        text = json.dumps(self.agreement(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_job(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    sizes: Sequence[str] = (),
    also: Callable[[Job], Iterable[Problem]] = lambda _: (),
) -> Job:
    """Reads and checks a job file; overrides are "a.b=value", the value in YAML.

    Relative paths in it are relative to the current directory and come out absolute.

    sizes: overrides of the environment. What they replace is checked all the same, so that a
        mistake is one however the job is started.
    also: what else is wrong with a job.
    """
    source = read_source(Path(path), overrides)
    if sizes:
        _validated(source)
    for argument in sizes:
        source.override(argument)
    job = _validated(source)
    problems = [*impossible(job), *also(job)]
    if problems:
        raise _user_error(source, problems)
    return _with_absolute_paths(job)


def _validated(source: Source) -> Job:
    try:
        return Job.model_validate(source.data)
    except ValidationError as error:
        raise _user_error(source, explain(error, source.data, Job)) from None


def _user_error(source: Source, problems: list[Problem]) -> UserError:
    lines = {f"{source.where(p.path)}: {p.sentence}": source.line(p.path) for p in problems}
    return UserError("\n".join(sorted(lines, key=lambda text: lines[text])))


def _with_absolute_paths(job: Job) -> Job:
    """A child process has another current directory than the one in which the user typed."""
    section = job.job.model_copy(update={"output": _absolute(job.job.output)})
    data = job.data.model_copy(update={"path": _absolute(job.data.path)})
    given = {key: getattr(job.checkpoint, key) for key in ("path", "resume", "warm_start")}
    paths = {key: _absolute(path) for key, path in given.items() if isinstance(path, Path)}
    checkpoint = job.checkpoint.model_copy(update=paths)
    hosts = tuple(
        host.model_copy(update={"key": _absolute(host.key)}) if host.key else host
        for host in job.hosts
    )
    sections = {"job": section, "data": data, "checkpoint": checkpoint, "hosts": hosts}
    return job.model_copy(update=sections)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, JsonValue]]:
    if not isinstance(value, dict) or not value:
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{prefix}.{key}" if prefix else key)
