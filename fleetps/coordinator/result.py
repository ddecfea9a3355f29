"""How the job went, in numbers: epochs, rows that add up, and result.json at its end."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fleetps
from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.reports import Accounting, EpochResult

_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu")
RESULT_VERSION = 1


class Result:
    def __init__(self, base: Base, life: Lifecycle) -> None:
        self._job = base.job
        self._store = base.store
        self._wall = base.wall
        self._life = life
        self.best_auc = _best_auc(base.dataset.source)
        self.versions = _versions()

    def history(self) -> tuple[EpochResult, ...]:
        return tuple(EpochResult.model_validate_json(text) for text in self._store.epochs())

    def accounting(self) -> Accounting:
        states = self._store.rows_by_state()
        leased, returned, repeated = self._store.leased_rows()
        return Accounting(
            total=sum(states.values()),
            leased=leased,
            done=states.get("done", 0),
            held=states.get("leased", 0),
            returned=returned,
            repeated=repeated,
            waiting=states.get("waiting", 0),
            quarantined=states.get("quarantined", 0),
            skipped=states.get("skipped", 0),
        )

    def write(self, path: Path) -> None:
        """result.json, by rename, so that nobody ever sees half of it."""
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(self._document(), file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def _document(self) -> dict[str, Any]:
        row = self._life.row
        history = [result.model_dump() for result in self.history()]
        evaluated = [result for result in history if result["evaluated_rows"]]
        rows = self._store.rows_by_state(training=True).get("done", 0)
        return {
            "version": RESULT_VERSION,
            "name": self._job.job.name,
            "state": row.state,
            "final": evaluated[-1] if evaluated else history[-1],
            "best_auc": self.best_auc,
            "history": history,
            "rows": rows,
            "rows_per_second": rows / row.train_seconds if row.train_seconds > 0 else None,
            "seconds": (row.finished or self._wall()) - row.started,
            "train_seconds": row.train_seconds,
            "accounting": self.accounting().model_dump(),
            "versions": self.versions,
            "digest": row.digest,
            "job": self._job.model_dump(mode="json"),
        }


def _best_auc(source: Mapping[str, Any]) -> float | None:
    """Synthetic data knows the AUC of its true probabilities."""
    value = source.get("best_auc")
    return float(value) if isinstance(value, (int, float)) else None


def _versions() -> dict[str, str]:
    found = {"fleetps": fleetps.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
