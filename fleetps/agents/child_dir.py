"""The current directory of a Paddle process: what it is told, and why it ended."""

import contextlib
import json
from pathlib import Path

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.system.logtail import exception
from fleetps.system.process import describe_exit
from fleetps.system.pulse_file import WORKED_FILE

_JOB = "job.json"
_ERROR = "error.json"
_TABLES = "tables.json"


class ChildDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, job: Job) -> None:
        """Write the job file; nothing is left that an earlier process said."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in (_ERROR, _TABLES, WORKED_FILE):
                (self.path / name).unlink(missing_ok=True)
            (self.path / _JOB).write_text(job.model_dump_json(indent=2), encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"can't write into {self.path}: {error.strerror}; "
                "set job.output to a directory that can be written"
            ) from None

    def tables(self) -> dict[str, int]:
        """The ids of a server's sparse tables by their names, once it has left them."""
        try:
            found = json.loads((self.path / _TABLES).read_text(encoding="utf-8"))
            return {str(name): int(table_id) for name, table_id in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def worked(self) -> bool:
        """The process has done a task, so it isn't one that can't but die."""
        return (self.path / WORKED_FILE).exists()

    def say(self, reason: str) -> None:
        """Why the agent ends the process, in place of the words it can't find itself."""
        with contextlib.suppress(OSError):  # the disk is full: the exit code says something too
            (self.path / _ERROR).write_text(json.dumps({"message": reason}), encoding="utf-8")

    def reason(self, code: int, log: Path) -> str:
        """Why the process ended: in its own words where it left some, otherwise the exit code."""
        words = self._last_words()
        if words:
            return words
        error = exception(log) if code > 0 else ""
        return f"its Paddle process ended: {describe_exit(code)}" + f" ({error})" * bool(error)

    def _last_words(self) -> str:
        try:
            words = json.loads((self.path / _ERROR).read_text(encoding="utf-8"))
            return str(words["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""
