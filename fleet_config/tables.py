"""Sparse tables: the row width, the servers' update rule with every value explicit, the shards.

Paddle takes a table that isn't configured in full as Adam whatever the job says, so a rule here
always names all of its values.
"""

import math
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from fleet_config.section import AUTO, AutoOrCount, Beta, Count, NotNegative, Positive, Section

MAX_CORES_PER_SERVER = 8
_LIKELY_SERVER_COUNTS = (1, 2, 4)

# A process that trains a table by itself (local, geo) takes ids modulo a number of rows: with 16
# rows for each id, 6 % of the ids share a row with another at most.
_LOCAL_ROWS_PER_ID = 16
MAX_LOCAL_ROWS = 1 << 25


def _check_bounds(value: Any) -> tuple[float, float]:
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = value
        if all(type(end) in (int, float) for end in value) and low < high:
            return (float(low), float(high))
    raise PydanticCustomError("expected", "[low, high], two numbers with low < high")


Bounds: TypeAlias = Annotated[tuple[float, float], BeforeValidator(_check_bounds)]


class _Rule(Section):
    learning_rate: Positive = 0.05
    initial_range: NotNegative = 0.01
    bounds: Bounds = (-10.0, 10.0)


class NaiveRule(_Rule):
    """row -= learning_rate * gradient."""

    name: Literal["naive"] = "naive"


class AdagradRule(_Rule):
    """AdaGrad with one sum per row; the gradient is divided by the id's count in the push."""

    name: Literal["adagrad"] = "adagrad"
    initial_g2sum: Positive = 3.0


class StdAdagradRule(_Rule):
    """AdaGrad with a sum per value; the gradient is divided by the id's count in the push."""

    name: Literal["std_adagrad"] = "std_adagrad"
    initial_g2sum: Positive = 3.0


class AdamRule(_Rule):
    """Adam with moments per value."""

    name: Literal["adam"] = "adam"
    learning_rate: Positive = 0.001
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    epsilon: Positive = 1e-8


class SharedAdamRule(_Rule):
    """Adam with moments that are shared by the first value, and by all others, of a row."""

    name: Literal["shared_adam"] = "shared_adam"
    learning_rate: Positive = 0.001
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    epsilon: Positive = 1e-8


Rule: TypeAlias = Annotated[
    NaiveRule | AdagradRule | StdAdagradRule | AdamRule | SharedAdamRule,
    Field(discriminator="name"),
]


class Admission(Section):
    """Which ids get factors.

    A row has a score of show_weight * (show - click) + click_weight * click: how often the id has
    been seen, and how often with a click. Its factors (all values but the first) come into being,
    and train, once the score has reached the threshold. Eviction and delta saves use the score too.
    """

    threshold: NotNegative = 0.0
    show_weight: NotNegative = 0.1
    click_weight: NotNegative = 1.0


class Eviction(Section):
    """Which rows are deleted, after every `every_epochs` epochs.

    Show and click of all rows are multiplied by `decay`; then rows whose score is less than `below`
    and rows that were not seen for more than `unseen_epochs` (None: any number) are deleted.
    """

    every_epochs: Count = 1
    decay: Annotated[float, Field(gt=0, le=1)] = 0.98
    below: NotNegative = 0.0
    unseen_epochs: Count | None = None


class Table(Section):
    """One sparse table. `dim` is the whole row: e.g. 1 first-order weight + 16 factors = 17."""

    dim: Annotated[int, Field(ge=2, le=1024)] = 17
    shards: AutoOrCount = AUTO
    rule: Rule = AdagradRule()
    admission: Admission = Admission()
    eviction: Eviction | None = None
    # The change of a row's score from which on a delta save holds the row.
    delta_threshold: NotNegative = 0.0


def table_shards(servers: int, cores: int) -> int:
    """How many shards a table gets where the job file says auto.

    A pull or push makes one task per shard on a server, so a server wants about as many as it
    has cores and no more (the default of 1000 costs a third of the speed). The total is a
    multiple of the server counts that a job is likely to move to, so that each then owns as much.
    """
    wanted = servers * min(cores, MAX_CORES_PER_SERVER)
    step = math.lcm(servers, *_LIKELY_SERVER_COUNTS)
    return math.ceil(wanted / step) * step


def bytes_per_row(dim: int, rule: Rule) -> int:
    """A server's memory per row in bytes: within 5 % of what jobs with 1.5 M ids took.

    A row is slot, unseen days, delta score, show, click, `dim` values and the rule's state.
    """
    return round(115 + 4.4 * (5 + dim + _server_state(dim, rule)))


def _server_state(dim: int, rule: Rule) -> int:
    """Floats of the state beside a row, that of its first value included."""
    match rule:
        case NaiveRule():
            return 0
        case AdagradRule():
            return 2
        case StdAdagradRule():
            return dim
        case SharedAdamRule():
            return 8
        case AdamRule():
            return 2 * dim + 4


def local_rows(distinct_ids: int) -> int:
    """Rows of a table that a process trains by itself: a power of two."""
    wanted = 1 << (_LOCAL_ROWS_PER_ID * distinct_ids - 1).bit_length()
    return min(MAX_LOCAL_ROWS, max(1 << 12, wanted))


def state_width(table: Table) -> int:
    """Floats of the rule's state for each row of a table that a process trains by itself."""
    match table.rule:
        case NaiveRule():
            return 0
        case AdagradRule():
            return 2
        case StdAdagradRule():
            return table.dim
        case SharedAdamRule():
            return 6
        case AdamRule():
            return 2 * table.dim + 2


def local_bytes(table: Table, rows: int) -> int:
    """Memory of a table that a process trains by itself: float32 values and state."""
    return 4 * rows * (table.dim + state_width(table))
