"""Rows of sparse tables after K steps of known gradients, against numpy, for each rule.

On a server what is pulled in every step and what is stored at the end; in the local role what is
stored at the end. The data has ids that repeat within a row, a batch and over slots, padding ids,
and ids that come late for the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference
from known import PADDING, RANGE, TABLE_RATE, Data, known_job
from probe_job import Left, run_local_probe, run_probe

pytestmark = pytest.mark.cluster

DIM = 4
WEIGHTS = 1 + np.arange(DIM) / 2  # of a row's values in the model's gradient
BOUNDS = (-0.4, 0.9)  # narrow enough to matter
ADAGRAD = {"initial_g2sum": 0.5}
ADAM = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}
# The rule's own values, and the rule in numpy.
RULES: dict[str, tuple[dict[str, float], Callable[[], reference.Rule]]] = {
    "naive": ({}, lambda: reference.naive_rule(TABLE_RATE)),
    "adagrad": (ADAGRAD, lambda: reference.adagrad_rule(TABLE_RATE, 0.5, shared=True)),
    "std_adagrad": (ADAGRAD, lambda: reference.adagrad_rule(TABLE_RATE, 0.5, shared=False)),
    "adam": (ADAM, lambda: reference.adam_rule(TABLE_RATE, 0.8, 0.9, 1e-3, shared=False)),
    "shared_adam": (ADAM, lambda: reference.adam_rule(TABLE_RATE, 0.8, 0.9, 1e-3, shared=True)),
}
# Values of state: those of the first value, those of the others.
STATE = {"naive": (0, 0), "adagrad": (1, 1), "std_adagrad": (1, DIM - 1), "shared_adam": (4, 4)}
STATE["adam"] = (4, 2 * (DIM - 1) + 2)

# The rules of a job's tables, without and with a column of several ids.
JOBS = {False: tuple(RULES), True: ("naive", "adagrad")}
CASES = pytest.mark.parametrize(
    ("name", "tags"),
    [(name, tags) for tags, names in JOBS.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else ("tags" if value else "one id a slot"),
)


def table(name: str) -> dict[str, Any]:
    common = {"name": name, "learning_rate": TABLE_RATE, "initial_range": RANGE}
    return {"dim": DIM, "rule": {**common, "bounds": list(BOUNDS), **RULES[name][0]}}


@dataclass(frozen=True)
class Trained:
    data: Data
    on_server: Left
    local: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Trained]:
    """A job with a table for each rule, with or without tags."""

    @functools.cache
    def train(tags: bool) -> Trained:
        directory = tmp_path_factory.mktemp("rules")
        data = Data(tags=tags, padding=True)
        tables = {name: table(name) for name in JOBS[tags]}
        job = known_job(directory, data, model={"name": "weighted_gradient"}, tables=tables)
        left = run_probe(job, directory, step_by_step=True)
        return Trained(data, left, run_local_probe(job, directory).dense("end"))

    return train


@CASES
def test_rule_on_a_server(name: str, tags: bool, trained: Callable[[bool], Trained]) -> None:
    data, left = trained(tags).data, trained(tags).on_server
    rows: dict[int, reference.ServerRow] = {}
    for (batch, pushes), pulled in zip(data.batches(), left.pulled(name), strict=True):
        expected = [[_sum(rows, slot) for slot in data.slots(row)] for row in batch]
        np.testing.assert_allclose(pulled, expected, atol=2e-5)
        for key, push in pushes.items():
            row = rows.setdefault(key, reference.ServerRow(DIM, RULES[name][1], BOUNDS))
            row.push(push.gradient * WEIGHTS, push.show, push.click)
    # Paddle counts the tables in the order of their names.
    stored = left.rows("end", sorted(JOBS[tags]).index(name))
    assert sorted(stored) == sorted(rows), "and so no row for the padding id"
    for key, values in stored.items():
        assert values[2:4] == [rows[key].show, rows[key].click]
        first, others = STATE[name]
        assert len(values) == 4 + DIM + first + others
        factors = values[5 + first : 4 + first + DIM]
        assert [values[4], *factors] == pytest.approx(rows[key].values, abs=2e-5)


def _sum(rows: dict[int, reference.ServerRow], slot: list[int]) -> np.ndarray:
    """What a slot pulls: zeros for padding, and for an id that was never pushed."""
    return np.sum([rows[key].values if key in rows else np.zeros(DIM) for key in slot], axis=0)


@CASES
def test_rule_in_the_local_role(name: str, tags: bool, trained: Callable[[bool], Trained]) -> None:
    """There no value of a new row misses its first gradient."""
    data, stored = trained(tags).data, trained(tags).local[name]
    rows: dict[int, tuple[np.ndarray, reference.Rule, reference.Rule]] = {}
    for _, pushes in data.batches():
        for key, push in pushes.items():
            values, first, others = rows.get(key) or (np.zeros(DIM), *_two(RULES[name][1]))
            gradient = push.gradient * WEIGHTS
            new = [first(values[:1], gradient[:1], push.show)]
            new += [others(values[1:], gradient[1:], push.show)]
            rows[key] = np.clip(np.concatenate(new), *BOUNDS), first, others
    for key, (values, _, _) in rows.items():
        assert stored[key % (len(stored) - 1)] == pytest.approx(values, abs=2e-5)
    assert PADDING not in rows
    assert np.abs(stored).max(axis=1).astype(bool).sum() >= len(rows)
    untouched = np.ones(len(stored), bool)
    untouched[[key % (len(stored) - 1) for key in rows]] = False
    untouched[-1] = False
    assert np.abs(stored[untouched]).max() <= RANGE


def _two(make: Callable[[], reference.Rule]) -> tuple[reference.Rule, reference.Rule]:
    return make(), make()
