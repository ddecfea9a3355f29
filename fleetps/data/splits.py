"""Which rows are for training and which for testing."""

from typing import Literal

import numpy as np
import numpy.typing as npt

SplitBy = Literal["time", "random"]


class TestRows:
    """Decides by a row's place in the whole input, where bad rows count as well.

    So the decision depends neither on blocks and shards nor on which rows turn out to be bad.
    `time` takes the last rows of the input, `random` each row with the same chance.
    """

    __test__ = False  # not a pytest class

    def __init__(self, by: SplitBy, fraction: float, seed: int, total: int | None) -> None:
        self._fraction = fraction
        self._seed = seed
        self._first = None
        if by == "time" and total is not None:
            self._first = total - round(total * fraction)

    def mask(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell which of these rows are test rows."""
        if self._first is not None:
            return np.asarray(rows >= self._first)
        chance = _splitmix64(rows.astype(np.uint64), self._seed) >> np.uint64(11)
        return np.asarray(chance < np.uint64(self._fraction * 2.0**53))


def _splitmix64(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + _finalise(np.array([seed], np.uint64))
    return _finalise(mixed)


def _finalise(mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
