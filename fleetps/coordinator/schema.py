"""The tables of the coordinator's state, and their rows as objects.

A task's present state is in `tasks`, every time it was handed out is a row of `leases`: going back
to a checkpoint sets tasks to `waiting` and ends their leases as `rewound`, and the accounting still
adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetps.coordinator.reports import JobPhase, MemberRole, MemberState

SCHEMA_VERSION = 4

SCHEMA = """
CREATE TABLE job (
  id INTEGER PRIMARY KEY CHECK (id = 1), digest TEXT NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL, exit_code INTEGER, failure TEXT, generation INTEGER NOT NULL,
  phase TEXT NOT NULL, phase_started REAL NOT NULL, epoch INTEGER NOT NULL,
  rows_leased INTEGER NOT NULL, started REAL NOT NULL, epoch_started REAL NOT NULL,
  train_seconds REAL NOT NULL, finished REAL, restore TEXT NOT NULL, goes_on TEXT NOT NULL,
  workers INTEGER NOT NULL, barren INTEGER NOT NULL, tries INTEGER NOT NULL, wanted TEXT NOT NULL,
  tasks_since INTEGER NOT NULL, rows_since INTEGER NOT NULL, since REAL NOT NULL,
  cause TEXT NOT NULL);
CREATE TABLE members (
  instance TEXT PRIMARY KEY, role TEXT NOT NULL, rank INTEGER NOT NULL, address TEXT NOT NULL,
  state TEXT NOT NULL, active BOOLEAN NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE tasks (
  id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, epoch INTEGER NOT NULL,
  training BOOLEAN NOT NULL, split TEXT NOT NULL, position INTEGER NOT NULL,
  slices TEXT NOT NULL, rows INTEGER NOT NULL, part INTEGER, pad INTEGER NOT NULL,
  rows_before INTEGER, shuffle_seed INTEGER, state TEXT NOT NULL DEFAULT 'waiting',
  failures INTEGER NOT NULL DEFAULT 0, done_by TEXT, loss_sum REAL, evaluation TEXT);
CREATE INDEX tasks_queue ON tasks (epoch, training, state, position);
CREATE TABLE leases (
  id INTEGER PRIMARY KEY, task INTEGER NOT NULL REFERENCES tasks, instance TEXT NOT NULL,
  request TEXT, rows INTEGER NOT NULL, repeated BOOLEAN NOT NULL,
  outcome TEXT NOT NULL DEFAULT 'held', granted REAL NOT NULL, ended REAL);
CREATE INDEX leases_held ON leases (instance) WHERE outcome = 'held';
CREATE UNIQUE INDEX leases_task ON leases (task) WHERE outcome = 'held';
CREATE TABLE arrivals (
  generation INTEGER NOT NULL, name TEXT NOT NULL, instance TEXT NOT NULL, rank INTEGER NOT NULL,
  note TEXT NOT NULL, PRIMARY KEY (generation, name, instance));
CREATE TABLE checkpoints (
  number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, state TEXT NOT NULL,
  directory TEXT NOT NULL, name TEXT NOT NULL, saver TEXT, reason TEXT NOT NULL,
  rows INTEGER NOT NULL, began REAL NOT NULL, drained REAL, ended REAL, progress TEXT);
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, result TEXT NOT NULL);
CREATE TABLE events (
  id INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
  text TEXT NOT NULL);
"""


@dataclass(frozen=True)
class JobRow:
    digest: str
    state: JobPhase
    reason: str
    exit_code: int | None
    failure: str | None
    generation: int
    phase: str
    phase_started: float
    epoch: int
    rows_leased: int
    started: float
    epoch_started: float
    train_seconds: float
    finished: float | None
    restore: str  # the checkpoint with which the generation began, or a later one of it
    goes_on: str  # the phase after a rendezvous or a checkpoint: train or evaluate
    workers: int  # how many the rendezvous waits for
    barren: int  # generations in a row in which no task was done
    tries: int  # generations since the last checkpoint
    wanted: str  # why a checkpoint was asked for; "": it was not
    tasks_since: int  # training tasks done since the last attempt to take a checkpoint
    rows_since: int
    since: float
    cause: str  # of a generation whose checkpoint is being chosen; "": none is


@dataclass(frozen=True)
class MemberRow:
    instance: str
    role: MemberRole
    rank: int
    address: str
    state: MemberState
    active: bool
    generation: int  # for which it last registered


@dataclass(frozen=True)
class CheckpointRow:
    """An attempt. `state`: open, saved, failed, or lost (broken off by a death); warm is that of
    the checkpoint with whose weights the job began."""

    number: int
    generation: int
    state: str
    directory: str  # in which it is written
    name: str = ""  # until it is saved
    saver: str | None = None
    reason: str = ""  # what it was taken for; why it failed
    rows: int = 0
    began: float = 0.0
    drained: float | None = None  # since then nobody trained
    ended: float | None = None
    progress: str | None = None

    @property
    def path(self) -> Path:
        """Where it is, once saved."""
        return Path(self.directory).with_name(self.name)


@dataclass(frozen=True)
class TaskRow:
    id: int
    generation: int
    epoch: int
    training: bool
    split: str
    slices: str
    rows: int
    part: int | None  # the only rank that may do it; None: anybody
    pad: int
    rows_before: int | None
    shuffle_seed: int | None
    state: str
    failures: int
    done_by: str | None


# In the order of TaskRow.
SELECT_TASK = (
    "SELECT id, generation, epoch, training, split, slices, rows, part, pad, rows_before, "
    "shuffle_seed, state, failures, done_by FROM tasks"
)


@dataclass(frozen=True)
class NewTask:
    """A task to be made; `rows_before` None: known when it is leased."""

    generation: int
    epoch: int
    training: bool
    split: str
    position: int
    slices: str
    rows: int
    part: int | None
    pad: int
    rows_before: int | None
    shuffle_seed: int | None


@dataclass(frozen=True)
class Arrival:
    instance: str
    rank: int
    note: str


@dataclass(frozen=True)
class LeaseRow:
    id: int
    task: int
    instance: str
