"""Synthetic Criteo-like data whose true click probability is known.

A row has 13 dense values (log-scaled counts) and 26 ids, zipf-distributed over a chosen number of
values per slot. The probability of a click is sigmoid(bias + id effects + dense effects + a few
low-rank interactions of two slots), so no model can beat the AUC of that probability: it is
computed on the test rows and kept in dataset.json as source.best_auc.

Rows are drawn in fixed chunks, each with its own generator seeded by (seed, stream, chunk):
neither the number of shards nor that of threads changes a row, and fewer rows are a prefix of
more.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet_config.errors import UserError
from fleetps.data.dataset import Column, Dataset, load_dataset
from fleetps.data.ids import hash_ids
from fleetps.data.parallel import ordered_map
from fleetps.data.scores import auc, log_loss
from fleetps.data.text import Texts, float_text, id_text, row_text
from fleetps.data.writer import SHARD_ROWS, Compression, writing

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DENSE = 13
SLOTS = 26
COLUMNS = (
    Column("label", "label", 1, ("label",)),
    Column("dense", "dense", DENSE, tuple(f"I{i}" for i in range(1, DENSE + 1))),
    Column("ids", "sparse", SLOTS, tuple(f"C{i}" for i in range(1, SLOTS + 1))),
)

_CHUNK = 16_384
_CALIBRATION, _TRAIN, _TEST, _EFFECTS = range(4)  # independent streams of random numbers

# Standard deviations of the parts of the logit.
_ID_SCALE, _DENSE_SCALE, _PAIR_SCALE = 1.3, 0.6, 0.6
_PAIRS = 4
_RANK = 2

_LEAST = {"rows": 1, "test_rows": 0, "seed": 0, "distinct_ids": 2 * SLOTS, "shard_rows": 1}


@dataclass(frozen=True)
class SyntheticSpec:
    """What `make_synthetic` makes; `distinct_ids` counts over all slots."""

    rows: int = 400_000
    test_rows: int = 100_000
    seed: int = 1
    distinct_ids: int = 26_000
    zipf: float = 1.1
    click_rate: float = 0.25
    shard_rows: int = SHARD_ROWS
    compress: Compression = "zstd"

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UserError(f"synthetic data: {name} must be at least {least}")
        if not 0 < self.click_rate < 1:
            raise UserError("synthetic data: click_rate must lie between 0 and 1")
        if self.zipf < 0:
            raise UserError("synthetic data: zipf must not be negative")

    @property
    def distinct_per_slot(self) -> int:
        return self.distinct_ids // SLOTS


@dataclass(frozen=True)
class _Rows:
    labels: npt.NDArray[np.int8]
    probability: Floats
    dense: Floats
    values: Ints

    def head(self, rows: int) -> "_Rows":
        return _Rows(
            self.labels[:rows], self.probability[:rows], self.dense[:rows], self.values[:, :rows]
        )


class TrueModel:
    """The model that the labels are drawn from."""

    def __init__(self, spec: SyntheticSpec) -> None:
        self._seed = spec.seed
        weights = 1.0 / np.arange(1, spec.distinct_per_slot + 1) ** spec.zipf
        frequency = weights / weights.sum()
        self._cumulative = np.cumsum(frequency)
        self._cumulative[-1] = 1.0
        random = np.random.default_rng([spec.seed, _EFFECTS])

        def effects(*shape: int) -> Floats:
            """Random effects with mean 0 and variance 1 under the frequency of the values."""
            drawn = random.standard_normal((*shape, spec.distinct_per_slot))
            drawn -= (drawn @ frequency)[..., None]
            return np.asarray(drawn / np.sqrt(drawn**2 @ frequency)[..., None])

        self._ids = effects(SLOTS) * (_ID_SCALE / np.sqrt(SLOTS))
        self._pairs = effects(_PAIRS, 2, _RANK)
        self._dense = random.standard_normal(DENSE)
        self._dense *= _DENSE_SCALE / np.linalg.norm(self._dense)
        self._bias = 0.0
        self._bias = self._solve_bias(spec.click_rate)

    def chunk(self, stream: int, number: int) -> _Rows:
        """Draw a chunk of rows."""
        random = np.random.default_rng([self._seed, stream, number])
        values = np.searchsorted(self._cumulative, random.random((SLOTS, _CHUNK)), side="right")
        dense = np.log1p(np.floor(np.exp(1.0 + 1.2 * random.standard_normal((_CHUNK, DENSE)))))
        probability = 1.0 / (1.0 + np.exp(-self._logit(values, dense)))
        labels = (random.random(_CHUNK) < probability).astype(np.int8)
        return _Rows(labels, probability, dense, values)

    def _logit(self, values: Ints, dense: Floats) -> Floats:
        logit = self._bias + dense @ self._dense
        for effects, slot in zip(self._ids, values, strict=True):
            logit += effects[slot]
        for number, (left, right) in enumerate(self._pairs):
            product = left[:, values[2 * number]] * right[:, values[2 * number + 1]]
            logit += product.sum(axis=0) * (_PAIR_SCALE / np.sqrt(_PAIRS * _RANK))
        return np.asarray(logit)

    def _solve_bias(self, click_rate: float) -> float:
        """Bisect for the bias with which a calibration chunk clicks at the wanted rate."""
        probability = self.chunk(_CALIBRATION, 0).probability
        logit = np.log(probability) - np.log1p(-probability)
        low, high = -30.0, 30.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            if np.mean(1.0 / (1.0 + np.exp(-(logit + middle)))) < click_rate:
                low = middle
            else:
                high = middle
        return low


def make_synthetic(path: str | Path, spec: SyntheticSpec) -> Dataset:
    """Write a synthetic data set to `path`, all or nothing."""
    model = TrueModel(spec)
    names = pa.array(range(spec.distinct_per_slot)).cast(pa.string())
    ids = [hash_ids(names, slot) for slot in COLUMNS[2].features]
    texts = [id_text(slot_ids) for slot_ids in ids]

    def chunks(stream: int, rows: int) -> Iterator[tuple[_Rows, memoryview]]:
        def make(number: int) -> tuple[_Rows, memoryview]:
            drawn = model.chunk(stream, number).head(rows - number * _CHUNK)
            return drawn, _text(drawn, texts)

        return ordered_map(make, range(-(-rows // _CHUNK)))

    with writing(
        Path(path), COLUMNS, shard_rows=spec.shard_rows, compression=spec.compress
    ) as writer:
        labels, probabilities = [np.empty(0, np.int8)], [np.empty(0)]
        for split, stream, rows in (("train", _TRAIN, spec.rows), ("test", _TEST, spec.test_rows)):
            for drawn, text in chunks(stream, rows):
                writer.write(split, text, len(drawn.labels))
                for slot_ids, values in zip(ids, drawn.values, strict=True):
                    writer.distinct.add(slot_ids[values])
                if split == "test":
                    labels.append(drawn.labels)
                    probabilities.append(drawn.probability)
        writer.finish(_source(spec, np.concatenate(labels), np.concatenate(probabilities)))
    log.info("%s: %d + %d synthetic rows", path, spec.rows, spec.test_rows)
    return load_dataset(path)


def _text(rows: _Rows, texts: list[pa.Array]) -> memoryview:
    dense = [pa.array(column).dictionary_encode() for column in rows.dense.T]
    return row_text(
        rows.labels,
        [
            [Texts(float_text(d.dictionary.to_numpy()), d.indices.to_numpy()) for d in dense],
            [Texts(text, values) for text, values in zip(texts, rows.values, strict=True)],
        ],
    )


def _source(
    spec: SyntheticSpec, labels: npt.NDArray[np.int8], probability: Floats
) -> dict[str, Any]:
    source: dict[str, Any] = {"kind": "synthetic", "options": asdict(spec)}
    if 0 < labels.sum() < len(labels):
        source["best_auc"] = auc(labels, probability)
        source["best_log_loss"] = log_loss(labels, probability)
    return source
