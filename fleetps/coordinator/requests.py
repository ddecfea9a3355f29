"""The arguments of the coordinator's methods as they come over the wire: checked before use."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt

from fleetps.coordinator.messages import Evaluation
from fleetps.coordinator.reports import MemberRole, MemberState

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=10_000)]


class Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def as_keywords(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class Instance(Arguments):
    instance: Name


class Register(Instance):
    role: MemberRole
    address: Name
    rank: NonNegativeInt | None = None
    digest: str = ""
    agreement: dict[str, Any] | None = None


class Heartbeat(Instance):
    state: MemberState


class Fail(Instance):
    reason: Text
    log_tail: Annotated[list[Text], Field(max_length=1000)] | None = None
    exit_code: int | None = None


class Reason(Arguments):
    reason: Text


class LeaseRequest(Instance):
    request: Name | None = None


class Report(Instance):
    task_id: int
    rows: NonNegativeInt
    steps: NonNegativeInt
    loss_sum: FiniteFloat


class Progress(Report):
    extra: dict[Name, FiniteFloat] | None = None


class Done(Report):
    evaluation: Evaluation | None = None


class Failed(Instance):
    task_id: int
    reason: Text


class BarrierName(Arguments):
    name: Name


class Arrive(Instance):
    name: Name


METHODS: dict[str, type[Arguments]] = {
    "register": Register,
    "rendezvous": Instance,
    "heartbeat": Heartbeat,
    "fail": Fail,
    "stop": Reason,
    "lease": LeaseRequest,
    "progress": Progress,
    "done": Done,
    "failed": Failed,
    "release": Instance,
    "arrive": Arrive,
    "arrived": BarrierName,
}
