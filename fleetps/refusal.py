"""A mistake that keeps a coordinator from starting, left in the run directory for who waits for it.

A coordinator that doesn't run can't be asked, and what watches over containers starts it in vain.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet_config.errors import UserError

_FILE = "coordinator.refusal"


@contextmanager
def left_in(run: Path) -> Iterator[None]:
    """Inside, a coordinator starts; nothing is left once it did."""
    try:
        yield
    except UserError as error:
        with suppress(OSError):  # then its log alone has the sentence
            run.mkdir(parents=True, exist_ok=True)
            (run / _FILE).write_text(str(error), encoding="utf-8")
        raise
    with suppress(OSError):
        (run / _FILE).unlink(missing_ok=True)


def raise_left_in(run: Path, since: float) -> None:
    """Raise what was left there since then, by this machine's clock; an older one may be mended."""
    file = run / _FILE
    try:
        if file.stat().st_mtime < since:
            return
        sentence = file.read_text(encoding="utf-8")
    except OSError:
        return
    raise UserError(sentence)
