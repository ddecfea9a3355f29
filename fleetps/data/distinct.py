"""How many different ids there are, estimated in constant memory (HyperLogLog)."""

import math

import numpy as np
import numpy.typing as npt

from fleetps.data.ids import ID_BITS

_INDEX_BITS = 14  # 16,384 registers: a standard error of 0.8 %
_REGISTERS = 1 << _INDEX_BITS
_REST_BITS = ID_BITS - _INDEX_BITS


class DistinctCounter:
    """Counts distinct ids; ids are hashes already, so their bits are used as they are."""

    def __init__(self) -> None:
        self._registers = np.zeros(_REGISTERS, np.int8)

    def add(self, ids: npt.NDArray[np.int64]) -> None:
        """Add ids, repeated or not."""
        rest = (ids & ((1 << _REST_BITS) - 1)).astype(np.float64)
        # Rank: the position of the first 1 among the rest bits. 48 bits are exact in a double.
        _, exponent = np.frexp(rest)
        rank = (_REST_BITS - exponent + 1).astype(np.int8)
        np.maximum.at(self._registers, ids >> _REST_BITS, rank)

    def estimate(self) -> int:
        """Return the estimated number of different ids."""
        alpha = 0.7213 / (1 + 1.079 / _REGISTERS)
        raw = alpha * _REGISTERS**2 / float(np.sum(2.0 ** -self._registers.astype(np.float64)))
        empty = int(np.count_nonzero(self._registers == 0))
        if raw <= 2.5 * _REGISTERS and empty:
            return round(_REGISTERS * math.log(_REGISTERS / empty))
        return round(raw)
