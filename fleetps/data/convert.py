"""Converts raw data into a data set, all or nothing, in memory that doesn't grow with it."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet_config.errors import UserError
from fleetps.data.badrows import BadRows
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.data.encode import Encoded, encode, slots
from fleetps.data.parallel import ordered_map
from fleetps.data.progress import meter
from fleetps.data.rare import MOST, ValueCounter
from fleetps.data.source import Parsed, Source
from fleetps.data.splits import SplitBy, TestRows
from fleetps.data.writer import SHARD_ROWS, Compression, check_free, writing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConvertOptions:
    """How to convert, whatever the format."""

    test_fraction: float = 0.2
    split: SplitBy = "time"
    seed: int = 1
    max_bad_fraction: float = 0.0
    min_count: int = 0
    shard_rows: int = SHARD_ROWS
    compress: Compression = "zstd"

    def __post_init__(self) -> None:
        for name in ("test_fraction", "max_bad_fraction"):
            if not 0 <= getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise UserError(f"--{option} must be at least 0 and less than 1")
        if not 0 <= self.min_count <= MOST:
            raise UserError(f"--min-count must lie between 0 (off) and {MOST}")
        if self.shard_rows < 1:
            raise UserError("--shard-rows must be at least 1")
        if self.seed < 0:
            raise UserError("--seed must not be negative")


def convert(source: Source, out: Path, options: ConvertOptions, made_from: Any) -> Dataset:
    """Convert `source` into a new data set at `out`; `made_from` goes into dataset.json."""
    check_free(out.absolute())
    test_rows = TestRows(
        options.split, options.test_fraction, options.seed, _total(source, options)
    )
    counter = _count_values(source, options, test_rows) if options.min_count > 1 else None
    columns = source.schema.dataset_columns()
    bad = BadRows()
    total = written = 0

    def work(parse: Callable[[], Parsed]) -> tuple[Parsed, dict[str, Encoded]]:
        parsed = parse()
        return parsed, {
            split: encode(part, source.schema, counter, options.min_count)
            for split, part in _parts(parsed, test_rows).items()
        }

    with (
        writing(
            out, columns, shard_rows=options.shard_rows, compression=options.compress
        ) as writer,
        meter("converting", source.bytes) as progress,
    ):
        for parsed, parts in ordered_map(work, source.blocks(progress.advance)):
            total += parsed.total
            bad.merge(parsed.bad)
            bad.check(total, options.max_bad_fraction, complete=False)
            for split, encoded in parts.items():
                writer.write(split, encoded.text, encoded.rows)
                writer.distinct.add(encoded.ids)
                written += encoded.rows
            progress.rows(parsed.total)
        bad.check(total, options.max_bad_fraction, complete=True)
        made = {**made_from, "options": asdict(options), "bad_rows": bad.count}
        dataset = writer.finish(made)
        if "train" not in dataset.splits:
            raise UserError(f"there are no training rows among the {total:,} rows of the input")
    for quote in bad.quotes:
        log.warning("left out: %s", quote)
    log.info("%s: %d rows written, %d bad rows left out", out, written, bad.count)
    return load_dataset(out)


def _total(source: Source, options: ConvertOptions) -> int | None:
    """The rows of the input where the split depends on it."""
    if options.split != "time" or not options.test_fraction:
        return None
    with meter("counting rows", source.bytes) as progress:
        return source.count_rows(progress.advance)


def _count_values(source: Source, options: ConvertOptions, test_rows: TestRows) -> ValueCounter:
    """Count the values of the training rows."""
    counter = ValueCounter()

    def work(parse: Callable[[], Parsed]) -> Parsed:
        return parse()

    bad = BadRows()
    total = 0
    with meter("counting values", source.bytes) as progress:
        for parsed in ordered_map(work, source.blocks(progress.advance)):
            total += parsed.total
            bad.merge(parsed.bad)
            bad.check(total, options.max_bad_fraction, complete=False)
            train = _parts(parsed, test_rows).get("train")
            for slot in slots(train, source.schema) if train else ():
                counter.add(slot.ids, slot.counts())
            progress.rows(parsed.total)
    bad.check(total, options.max_bad_fraction, complete=True)
    return counter


def _parts(parsed: Parsed, test_rows: TestRows) -> dict[str, Parsed]:
    """The training and the test rows of a block, where it has some."""
    test = test_rows.mask(parsed.rows)
    chosen = {"train": np.logical_not(test), "test": test}
    return {split: parsed.only(mask) for split, mask in chosen.items() if mask.any()}
