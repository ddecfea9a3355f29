"""The dense optimizer, which the workers own, and its learning-rate schedule."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from fleet_config.section import (
    AUTO,
    AutoOrCount,
    Beta,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Section,
)

Factor: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Schedule(Section):
    """A step is one batch of one worker; steps are counted over the whole job."""

    warmup_steps: CountOrZero = 0


class ConstantSchedule(_Schedule):
    """The learning rate as given, after the warm-up."""

    name: Literal["constant"] = "constant"


class _Decay(_Schedule):
    total_steps: AutoOrCount = AUTO
    min_factor: Factor = 0.0

    @model_validator(mode="after")
    def _warm_up_ends_first(self) -> Self:
        if self.total_steps != AUTO and self.warmup_steps >= self.total_steps:
            raise PydanticCustomError("sentence", "warmup_steps must be less than total_steps")
        return self


class LinearSchedule(_Decay):
    """Down in a straight line to learning_rate * min_factor at total_steps."""

    name: Literal["linear"] = "linear"


class CosineSchedule(_Decay):
    """Down along half a cosine to learning_rate * min_factor at total_steps."""

    name: Literal["cosine"] = "cosine"


class StepSchedule(_Schedule):
    """Times gamma after every step_size steps."""

    name: Literal["step"] = "step"
    step_size: Count
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1


Schedule: TypeAlias = Annotated[
    ConstantSchedule | LinearSchedule | CosineSchedule | StepSchedule, Field(discriminator="name")
]


class _Optimizer(Section):
    learning_rate: Positive = 0.001
    weight_decay: NotNegative = 0.0
    clip_norm: Positive | None = None
    # Batches whose gradients are averaged into one update of the dense weights.
    accumulate: Count = 1
    schedule: Schedule = ConstantSchedule()


class Sgd(_Optimizer):
    """Plain gradient descent."""

    name: Literal["sgd"] = "sgd"
    learning_rate: Positive = 0.01


class Momentum(_Optimizer):
    """Gradient descent with momentum."""

    name: Literal["momentum"] = "momentum"
    learning_rate: Positive = 0.01
    momentum: Beta = 0.9


class Adagrad(_Optimizer):
    """AdaGrad."""

    name: Literal["adagrad"] = "adagrad"
    learning_rate: Positive = 0.01
    epsilon: Positive = 1e-6


class Adam(_Optimizer):
    """Adam; weight_decay is added to the gradient."""

    name: Literal["adam"] = "adam"
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    epsilon: Positive = 1e-8


class AdamW(_Optimizer):
    """Adam with weight_decay applied to the weights."""

    name: Literal["adamw"] = "adamw"
    weight_decay: NotNegative = 0.01
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    epsilon: Positive = 1e-8


Optimizer: TypeAlias = Annotated[
    Sgd | Momentum | Adagrad | Adam | AdamW, Field(discriminator="name")
]
