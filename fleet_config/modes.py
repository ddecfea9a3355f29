"""How the workers of a job learn together, and the schedule that changes it between epochs."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from fleet_config.section import AUTO, AutoOrRows, Count, Section


class AsyncMode(Section):
    """Every worker pulls and pushes on its own."""

    name: Literal["async"] = "async"


class SyncMode(Section):
    """The dense gradients of all workers are averaged in every step.

    strict: sparse rows too are those of one step of all workers: pushes have arrived everywhere
    before anybody pulls again, so N workers learn what one would from batches N times as large.
    """

    name: Literal["sync"] = "sync"
    strict: bool = False


class GeoMode(Section):
    """Workers train copies of everything and exchange what has changed every `steps` batches.

    vocabulary: the rows of each table on each worker; ids are taken modulo it.
    """

    name: Literal["geo"] = "geo"
    steps: Count = 100
    vocabulary: AutoOrRows = AUTO


class BoundedMode(Section):
    """async, but no worker gets more than `staleness` steps ahead of the slowest one.

    quorum: the share of the workers that count for that; the slowest others aren't waited for.
    check_every: steps between two questions to the coordinator.
    """

    name: Literal["bounded"] = "bounded"
    staleness: Count = 32
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0
    check_every: Count = 8

    @model_validator(mode="after")
    def _asks_before_the_bound(self) -> Self:
        if self.check_every > self.staleness:
            raise PydanticCustomError(
                "sentence",
                "check_every ({check_every}) must be at most staleness ({staleness}); lower it",
                {"check_every": self.check_every, "staleness": self.staleness},
            )
        return self


def _spelled_out(value: Any) -> Any:
    """`sync` is short for {name: sync}."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping | Section):
        return value
    raise PydanticCustomError("expected", "the name of a mode or a section with it")


Mode: TypeAlias = Annotated[
    AsyncMode | SyncMode | GeoMode | BoundedMode,
    Field(discriminator="name"),
    BeforeValidator(_spelled_out),
]


class Stage(Section):
    """A mode and for how many epochs; None, for all of them, only where there is one stage."""

    mode: Mode
    epochs: Count | None = None


def _some(value: Any) -> Any:
    # min_length would count the good stages only and complain twice.
    if not value:
        raise PydanticCustomError("expected", "a mode or a list of at least one stage")
    return value


def _form(value: Any) -> str:
    return "schedule" if isinstance(value, list | tuple) else "single"


# In the job file: sync, {name: sync, strict: true} or a list of stages.
ModeOrSchedule: TypeAlias = Annotated[
    Annotated[Mode, Tag("single")]
    # A YAML list is no tuple, which a strict model would mind.
    | Annotated[tuple[Stage, ...], Field(strict=False), BeforeValidator(_some), Tag("schedule")],
    Discriminator(_form),
]
