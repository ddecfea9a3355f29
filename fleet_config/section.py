"""What every section of the job file has in common: strict types, no unknown keys, no changes."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

AUTO: Literal["auto"] = "auto"


class Section(BaseModel):
    """A mapping in the job file. Strict: the text "2" is not the number 2."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _whole_number_or_auto(least: int) -> Callable[[Any], int | Literal["auto"]]:
    def check(value: Any) -> int | Literal["auto"]:
        # A union would be reported once per branch; this is one sentence.
        if value == AUTO:
            return AUTO
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise PydanticCustomError(
            "expected", "auto or a whole number of at least {least}", {"least": least}
        )

    return check


def text_of(pattern: str, description: str) -> AfterValidator:
    """Checks text against a pattern and, where it doesn't match, says it in words."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value):
            return value
        raise PydanticCustomError("expected", "{description}", {"description": description})

    return AfterValidator(check)


AutoOrCount: TypeAlias = Annotated[int | Literal["auto"], PlainValidator(_whole_number_or_auto(1))]
# Of a table that a process trains by itself: one row is that of the padding id.
AutoOrRows: TypeAlias = Annotated[int | Literal["auto"], PlainValidator(_whole_number_or_auto(2))]
Count: TypeAlias = Annotated[int, Field(ge=1)]
CountOrZero: TypeAlias = Annotated[int, Field(ge=0)]
Positive: TypeAlias = Annotated[float, Field(gt=0)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0)]
Beta: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86_400)]
