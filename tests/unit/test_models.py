"""What a model's file must keep to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paddle
import pytest

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps import models
from fleetps.data.dataset import load_dataset
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.training.program import Network, build_network
from fleetps.training.sparse import ServerTables

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:paddle.base.layers.math_op_patch"
)

Build = Callable[..., Network]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tiny"
    make_synthetic(path, SyntheticSpec(rows=100, test_rows=50, distinct_ids=52))
    return path


@pytest.fixture
def build(data: Path) -> Iterator[Build]:
    def built(model: str) -> Network:
        job = {"job": {"name": "a"}, "data": {"path": data}, "model": {"name": model}}
        dataset = load_dataset(data)
        lookup = ServerTables(dataset.columns).lookup
        return build_network(Job.model_validate(job), dataset, lookup)

    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        yield built
    paddle.disable_static()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetps.models.base._registry", dict(models.base._registry))


@pytest.mark.parametrize("model", models.names())
def test_ours_return_one_logit_per_row(build: Build, model: str) -> None:
    assert tuple(build(model).logit.shape) == (-1, 1)


def first_order(inputs: models.Inputs) -> Any:
    return inputs.embedding()[:, :, 0]


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (lambda inputs: inputs.dense[:, :1], "doesn't use tables.embedding: remove it"),
        (
            lambda inputs: first_order(inputs).sum(axis=1),
            r"must return logits of shape \[batch, 1\], not \[-1\]",
        ),
        (first_order, r"not \[-1, 26\]"),
        (
            lambda inputs: paddle.static.nn.batch_norm(first_order(inputs)).sum(1, keepdim=True),
            "has a parameter that isn't trained, batch_norm",
        ),
    ],
)
def test_a_network_that_could_not_be_trained(
    build: Build, network: Callable[[models.Inputs], Any], sentence: str
) -> None:
    models.register("wrong", models.Params)(lambda inputs, _: network(inputs))
    with pytest.raises(UserError, match=sentence):
        build("wrong")
