"""How often each id occurs, counted in constant memory (a count-min sketch)."""

import numpy as np
import numpy.typing as npt

_BITS = 26  # two tables of 64 MB
_MASK = (1 << _BITS) - 1
MOST = 255


class ValueCounter:
    """Counts ids up to 255. Ids that share both places are counted together.

    So a rare id may pass for a more frequent one (rarely: both of two hashes have to collide),
    but a frequent one never for a rare one.
    """

    def __init__(self) -> None:
        self._tables = [np.zeros(1 << _BITS, np.uint8) for _ in range(2)]

    def add(self, ids: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
        """Count ids."""
        for table, places in zip(self._tables, _places(ids), strict=True):
            where, inverse = np.unique(places, return_inverse=True)
            added = np.bincount(inverse, weights=counts)
            table[where] = np.minimum(table[where] + added, MOST).astype(np.uint8)

    def at_least(self, ids: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.bool_]:
        """Tell which ids were counted at least so often."""
        first, second = (
            table[places] >= least for table, places in zip(self._tables, _places(ids), strict=True)
        )
        return np.asarray(first & second)


def _places(ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    # Ids are hashes: two ranges of their bits are two independent hashes.
    return ids & _MASK, (ids >> _BITS) & _MASK
