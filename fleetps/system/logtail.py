"""The last lines of a process's log, for the message about its death."""

import os
import re
from pathlib import Path

_LINES = 20
_BYTES = 64 * 1024

# What Paddle writes whether or not anything is wrong: glog INFO and WARNING lines, its import-time
# warnings, banners and the frames of C++ stack traces.
_NOISE = re.compile(
    r"""^\s*$
    | ^[IW]\d{4,8}\s
    | ^\d+\s+\S*(paddle|brpc|bthread|bvar)\S*::
    | ^\d+\s+(void|bool|int|float|std)\b.*::
    | (User|Deprecation|Future|Runtime)Warning:
    | ^\s*warnings\.warn
    | ^[\s=*+|#-]+$
    | fl-ps\ >\ coordinator\ address\ is\ null
    | ^\ *C\+\+\ Traceback
    """,
    re.VERBOSE,
)


def tail(log: Path, lines: int = _LINES) -> list[str]:
    """The last lines that say something; the plain last lines where all look like noise."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    every = text.splitlines()
    telling = [line.rstrip() for line in every if not _NOISE.search(line)]
    return (telling or every)[-lines:]
