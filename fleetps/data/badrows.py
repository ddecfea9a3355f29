"""Rows that can't be used: counted, the first ones kept to be quoted."""

from dataclasses import dataclass, field

from fleet_config.errors import UserError

QUOTED = 5
_LONGEST_QUOTE = 60


@dataclass
class BadRows:
    """How many rows of some input are bad, and why the first ones are."""

    count: int = 0
    quotes: list[str] = field(default_factory=list)

    def add(self, where: str, reason: str, text: str) -> None:
        """Count a row; `text` is its beginning."""
        self.count += 1
        if len(self.quotes) < QUOTED:
            short = text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."
            self.quotes.append(f"{where}: {reason}: {short!r}")

    def merge(self, other: "BadRows") -> None:
        """Add what was found in a later part of the input."""
        self.count += other.count
        self.quotes = (self.quotes + other.quotes)[:QUOTED]

    def check(self, rows: int, max_fraction: float, complete: bool) -> None:
        """Refuse when more than `max_fraction` of `rows` are bad.

        Before the end of the input (`complete` is false) only the first bad row of an input that
        may have none is reason to stop.
        """
        if not self.count or (not complete and max_fraction > 0):
            return
        if self.count <= max_fraction * rows:
            return
        so_far = "" if complete else " so far"
        head = (
            f"{self.count:,} of {rows:,} rows{so_far} are bad, more than the {max_fraction:g} that "
            "--max-bad-fraction allows, so nothing was written"
        )
        more = [f"and {self.count - len(self.quotes):,} more"] * (self.count > len(self.quotes))
        raise UserError("\n  ".join([head, *self.quotes, *more]))
