"""The norm that is kept is that of the gradient: plain SGD moves the weights by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest

from fleet_config.job import Job
from fleetps.data.dataset import load_dataset
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.training import build, dense

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:paddle.base.layers.math_op_patch"
)

RATE, BATCH = 0.5, 64


def test_sgd_moves_the_weights_by_the_rate_times_the_norm(tmp_path: Path) -> None:
    make_synthetic(tmp_path / "data", SyntheticSpec(rows=BATCH, test_rows=0, distinct_ids=2_600))
    job = Job.model_validate(
        {
            "job": {"name": "norm", "output": tmp_path / "runs"},
            "data": {"path": tmp_path / "data", "batch_size": BATCH},
            "tables": {"embedding": {"dim": 5}},
            "model": {"name": "deepfm", "params": {"hidden": [8]}},
            "optimizer": {"name": "sgd", "learning_rate": RATE},
            "observe": {"gradient_norm": True},
        }
    )
    paddle.enable_static()
    with paddle.static.scope_guard(paddle.static.Scope()):
        assert dense.last_norm() is None
        programs = build.build_local(
            job, load_dataset(job.data.path), 3_000, lambda *_: None, lambda *_: None
        )
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(programs.startup)
        rate = paddle.static.global_scope().find_var(programs.learning_rate).get_tensor()
        rate.set(np.array([RATE], "float32"), paddle.CPUPlace())
        before = _weights(programs.dense)
        executor.run(programs.train["async"], feed=_batch(programs.feeds))
        after = _weights(programs.dense)
        moved = np.sqrt(sum(np.square(before[name] - after[name]).sum() for name in before))
        assert moved > 0
        norm = dense.last_norm()
    paddle.disable_static()
    assert norm is not None
    np.testing.assert_allclose(norm, moved / RATE, rtol=1e-5)


def _weights(names: list[str]) -> dict[str, np.ndarray]:
    scope = paddle.static.global_scope()
    return {name: np.array(scope.find_var(name).get_tensor()).astype("float64") for name in names}


def _batch(feeds: list[object]) -> dict[str, np.ndarray]:
    """Any rows will do."""
    random = np.random.default_rng(3)
    found = {}
    for variable in feeds:
        shape = [BATCH if size == -1 else size for size in variable.shape]
        if variable.name == "column.label":
            found[variable.name] = random.integers(0, 2, shape)
        elif variable.dtype == paddle.int64:
            found[variable.name] = random.integers(0, 2_600, shape)
        else:
            found[variable.name] = random.normal(size=shape).astype("float32")
    return found
