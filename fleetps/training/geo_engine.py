"""Mode geo: a worker's side of the exchange with the servers, see `geo`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle

from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.data.dataset import Dataset
from fleetps.memory import worker_rows
from fleetps.training import geo
from fleetps.training.build import Hook, Programs
from fleetps.training.engines import ServerEngine

Rows = npt.NDArray[np.int64]  # [n]
Values = npt.NDArray[np.float32]  # [n, dim]

CHUNK = 1 << 16  # rows in one request


@dataclass(frozen=True)
class _Taken:
    """Rows and their values in each table as they came from the servers."""

    rows: Rows
    values: Sequence[Values]


class GeoEngine(ServerEngine):
    """Rows are pulled before a task and pushed after it; the task itself needs no server."""

    _exchange: geo.ExchangePrograms
    _taken: _Taken

    def programs(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        """See `ServerEngine`."""
        programs, self._exchange = geo.build_geo(job, dataset, on_batch, on_evaluated)
        self._threads = job.cluster.threads
        self._table_rows = worker_rows(job, dataset.distinct_ids)
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._scope = paddle_compat.SharedScope()
        return programs

    def prepare(self, data: Any, *, training: bool) -> None:
        """Take over what the task needs from the servers; training makes the rows that are new."""
        rows = self._needed(data)
        self._scope.share([*self._exchange.tables, *self._exchange.dense])
        values = self._pull(rows)
        if training:
            self._make_missing(rows, values)
            self._taken = _Taken(rows, values)
            self.refresh()
            self._exchange_by(self._exchange.keep)

    def task_done(self) -> None:
        """Send what the task changed; others see it when this returns."""
        share = 1.0 / self._client.rendezvous(self._instance).learners
        self._push(self._taken, share)
        self._exchange_by(self._exchange.send, {geo.SHARE: np.array([share], np.float32)})
        self.flush()

    def _needed(self, data: Any) -> Rows:
        marks = paddle.static.global_scope().var(geo.MARKS).get_tensor()
        marks.set(np.zeros(self._table_rows, np.float32), paddle.CPUPlace())
        self._executor.train_from_dataset(self._exchange.mark, data, thread=self._threads)
        return np.flatnonzero(np.array(marks)[:-1])  # the last row stands for padding

    def _make_missing(self, rows: Rows, values: Sequence[Values]) -> None:
        """Make the rows that the servers don't have, as zeros say, and take them over.

        A server draws the values of a row when it is pushed for the first time, and forgets what
        came with that push. A change of nothing does no harm if another worker was faster.
        """
        missing = np.logical_or.reduce([~each.any(axis=1) for each in values])
        if missing.any():
            self._push(_Taken(rows[missing], [each[missing] for each in values]), 0.0)
            self.flush()
            for each, made in zip(values, self._pull(rows[missing]), strict=True):
                each[missing] = made

    def _pull(self, rows: Rows) -> list[Values]:
        names = [geo.pulled(table) for table in self._exchange.tables]
        parts = [
            self._exchange_by(self._exchange.pull, {geo.ROWS: rows[chunk, None]}, names)
            for chunk in _chunks(len(rows))
        ]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _push(self, taken: _Taken, share: float) -> None:
        for chunk in _chunks(len(taken.rows)):
            feed: dict[str, Any] = {
                geo.before(table): values[chunk]
                for table, values in zip(self._exchange.tables, taken.values, strict=True)
            }
            feed[geo.ROWS] = taken.rows[chunk, None]
            feed[geo.SHARE] = np.array([share], np.float32)
            self._exchange_by(self._exchange.push, feed)

    def _exchange_by(
        self, program: Any, feed: dict[str, Any] | None = None, fetch: Sequence[str] = ()
    ) -> list[Any]:
        return list(
            self._executor.run(program, feed=feed, fetch_list=[*fetch], scope=self._scope.scope)
        )


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK):
        yield slice(start, start + CHUNK)
