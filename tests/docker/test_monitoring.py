"""The profile monitoring, as far as its programs can be had without a registry: Prometheus."""

from __future__ import annotations

import io

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


@pytest.fixture(scope="module")
def prometheus(engine: Engine, images: dict[str, str]) -> str:
    """The image's name."""
    name = "fleetps-test-prometheus:local"
    engine.client.images.build(
        fileobj=io.BytesIO(PROMETHEUS.encode()), tag=name, network_mode="host", rm=True
    )
    return name


def test_prometheus_sees_the_coordinator_and_both_servers(stack: Stack, prometheus: str) -> None:
    port = free_port()
    stack.more = {"PROMETHEUS_IMAGE": prometheus, "PROMETHEUS_PORT": str(port)}
    stack.options.append("--set job.epochs=500")
    stack.up("prometheus", profile="monitoring")

    def up() -> dict[tuple[str, str], str]:
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{port}/api/v1/query", params={"query": "up"}, trust_env=False
            )
        except httpx.TransportError:
            return {}
        if answer.status_code != httpx.codes.OK:  # it still starts
            return {}
        found = answer.json()["data"]["result"]
        return {
            (one["metric"]["job"], one["metric"].get("rank", "")): one["value"][1] for one in found
        }

    stack.until(lambda: sum(value == "1" for value in up().values()) == 3, "three targets")
    assert set(up()) == {("fleetps", ""), ("fleetps-servers", "0"), ("fleetps-servers", "1")}
