"""A text file that others write to, read as it grows."""

from collections.abc import Iterator
from pathlib import Path


class GrowingFile:
    def __init__(self, path: Path, at: int = 0) -> None:
        """`at`: how many bytes of it are known already."""
        self.path = path
        self._at = at
        self._part = b""

    def lines(self) -> Iterator[str]:
        """Whole lines that were written since the last call; none while there is no such file."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._at)
            for raw in file:
                self._at += len(raw)
                self._part += raw
                if raw.endswith(b"\n"):
                    text, self._part = self._part, b""
                    yield _text(text)

    def rest(self) -> Iterator[str]:
        """A last line without an end, once nobody writes any more."""
        if self._part:
            text, self._part = self._part, b""
            yield _text(text)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace").rstrip()
