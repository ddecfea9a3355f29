"""Logging of a FleetPS process: text for people, or JSON lines.

Text goes to standard error, JSON lines to standard output, where collectors of logs read.

Every line carries the role and rank (`worker-1`). More fields for machines go into `extra`:

    log.info("registered", extra={"fields": {"rank": 1}})
"""

import json
import logging
import re
import sys
from datetime import datetime, timezone
from typing import Any, Literal

from fleetps.observe.output import let_go

LogFormat = Literal["text", "json"]

# Libraries that report every request at INFO.
_CHATTY = ("httpx", "httpcore")

# What a text line has before the message.
_PREFIX = re.compile(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(,\d{3})? [A-Z]+ (\S+: )?")


class _Output(logging.Handler):
    """Looks the stream up for every line: a live display replaces it while it draws."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        super().__init__()
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        stream = getattr(sys, self._name)
        try:
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except OSError:
            let_go(stream)
        except ValueError:
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """A JSON object per record: time, level, role, logger, message, the record's own fields."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "role": self.role,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def message_of(line: str) -> str:
    """The message in a line that one of our processes has logged."""
    try:
        record = json.loads(line)
    except ValueError:
        return _PREFIX.sub("", line)
    return str(record.get("message", line)) if isinstance(record, dict) else line


def set_up_logging(log_format: LogFormat, role: str = "", level: int = logging.INFO) -> None:
    """Configure the root logger of this process. Call it again when the rank becomes known."""
    if log_format == "json":
        handler = _Output("stdout")
        handler.setFormatter(JsonFormatter(role))
    else:
        handler = _Output("stderr")
        name = f"{role}: " if role else ""
        # Who looks at a terminal knows the date; in a file lines are put in order by it.
        clock = "%H:%M:%S" if sys.stderr.isatty() else None
        handler.setFormatter(
            logging.Formatter(f"%(asctime)s %(levelname)s {name}%(message)s", clock)
        )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
