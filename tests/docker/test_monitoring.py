"""The profile monitoring, as far as its programs can be had without a registry: not Grafana."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import httpx
import pytest
from engine import Engine
from images import BASE
from isolation import free_port
from stack import Stack

pytestmark = [pytest.mark.docker, pytest.mark.thorough]

# Debian's program where the image of docker-compose.yml has it, for a user who is nobody.
PROMETHEUS = f"""
FROM {BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends prometheus \
    && install --directory --owner=65534 --group=65534 /prometheus
USER 65534:65534
ENTRYPOINT ["prometheus"]
"""
# As in the image of docker-compose.yml: a command, for root.
TENSORBOARD = f"""
FROM {BASE}
COPY packages /opt/packages
ENV PYTHONPATH=/opt/packages
RUN echo 'exec python3 -m tensorboard.main "$@"' > /usr/local/bin/tensorboard \
    && sed -i '1i #!/bin/sh' /usr/local/bin/tensorboard && chmod +x /usr/local/bin/tensorboard
"""


@pytest.fixture(scope="module")
def prometheus(engine: Engine, images: dict[str, str]) -> str:
    """The image's name."""
    name = "fleetps-test-prometheus:local"
    engine.client.images.build(
        fileobj=io.BytesIO(PROMETHEUS.encode()), tag=name, network_mode="host", rm=True
    )
    return name


@pytest.fixture(scope="module")
def tensorboard(engine: Engine, images: dict[str, str], tmp_path_factory: Any) -> str:
    """The image's name. pip fetches the packages outside, for Debian's Python."""
    name, directory = "fleetps-test-tensorboard:local", tmp_path_factory.mktemp("tensorboard")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--python-version=3.11"]
    pip += ["--only-binary=:all:", f"--target={directory}/packages", "tensorboard"]
    subprocess.run(pip, check=True)
    (directory / "Dockerfile").write_text(TENSORBOARD)
    engine.client.images.build(path=str(directory), tag=name, rm=True)
    return name


def answer(port: int, path: str, **parameters: str) -> Any:
    """As JSON; None: it still starts, or has nothing."""
    try:
        url = f"http://127.0.0.1:{port}{path}"
        found = httpx.get(url, params=parameters, trust_env=False)
    except httpx.TransportError:
        return None
    return found.json() if found.status_code == httpx.codes.OK else None


def test_a_job_is_watched(stack: Stack, prometheus: str, tensorboard: str) -> None:
    """TensorBoard has the volume of the runs first; the job writes into it all the same."""
    targets, curves = free_port(), free_port()
    stack.more = {
        "PROMETHEUS_IMAGE": prometheus,
        "PROMETHEUS_PORT": str(targets),
        "TENSORBOARD_IMAGE": tensorboard,
        "TENSORBOARD_PORT": str(curves),
        "RUNS": "runs",
    }
    stack.options.append("--set job.epochs=500")
    stack.up("tensorboard", profile="monitoring")
    stack.up("prometheus", profile="monitoring")
    stack.up()
    prometheus_sees_the_coordinator_and_both_servers(stack, targets)
    tensorboard_serves_the_curves(stack, curves)


def prometheus_sees_the_coordinator_and_both_servers(stack: Stack, port: int) -> None:
    def up() -> dict[tuple[str, str], str]:
        found = answer(port, "/api/v1/query", query="up")
        return {
            (one["metric"]["job"], one["metric"].get("rank", "")): one["value"][1]
            for one in (found["data"]["result"] if found else ())
        }

    stack.until(lambda: sum(value == "1" for value in up().values()) == 3, "three targets")
    assert set(up()) == {("fleetps", ""), ("fleetps-servers", "0"), ("fleetps-servers", "1")}


def tensorboard_serves_the_curves(stack: Stack, port: int) -> None:
    run = "quickstart/tensorboard"

    def curve(tag: str) -> list[tuple[float, int, float]]:
        return answer(port, "/data/plugin/scalars/scalars", tag=tag, run=run) or []

    stack.until(lambda: curve("evaluation/auc"), "AUC")
    auc = stack.wait("an epoch", lambda status: status["history"])["history"][0]["auc"]
    assert curve("evaluation/auc")[0][2] == pytest.approx(auc, abs=1e-6)
    losses = curve("train/loss")
    assert all(0.2 < loss < 1 for _, _, loss in losses)
    rows = [step for _, step, _ in losses]
    assert rows
    assert rows == sorted(set(rows))
    told = answer(port, "/data/plugin/scalars/tags")[run]
    assert {"speed/rows_per_second", "rows/embedding", "evaluation/calibration"} <= told.keys()
