"""The profile tls: the job trains, and who has no certificate, or another one, gets nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from engine import Engine
from stack import Stack
from test_jobs import LEAST_AUC_OF_ONE

pytestmark = pytest.mark.docker

PEERS = ("tls-server-0-proxy", "tls-server-1-proxy", "tls-coordinator-proxy")


@contextmanager
def stranger(engine: Engine, stack: Stack, image: str) -> Iterator[Callable[[str], str]]:
    """A container in the job's network that sees the certificates; what a script says there."""
    container: Any = engine.client.containers.run(
        image,
        ["sleep", "infinity"],
        detach=True,
        network=f"{stack.project}_cluster",
        volumes={f"{stack.project}_certs": {"bind": "/certs", "mode": "ro"}},
    )

    def says(script: str) -> str:
        return str(container.exec_run(["bash", "-c", f"({script}) 2>&1"]).output.decode())

    try:
        yield says
    finally:
        container.remove(force=True)


def test_it_trains_and_refuses_strangers(
    engine: Engine, images: dict[str, str], stack: Stack
) -> None:
    stack.options.append("--set job.epochs=1")
    with stack.running("--profile", "tls", "run", "--rm", "-T", "tls-done") as waiting:
        stack.wait_for_log("tls-coordinator", "rows/s")
        with stranger(engine, stack, images["tls"]) as says:
            refused(says)
        stack.ended(waiting)
    assert stack.result()["final"]["auc"] > LEAST_AUC_OF_ONE


def refused(says: Callable[[str], str]) -> None:
    talk = "printf 'GET /health HTTP/1.0\\r\\n\\r\\n' | timeout 10 openssl s_client -quiet"
    for peer in PEERS:
        assert "certificate required" in says(f"{talk} -connect {peer}:7443")
    # One of this job's authority, but of another role.
    known = "-CAfile /certs/authority.pem -cert"
    server = f"{talk} -connect tls-server-0-proxy:7443 {known}"
    assert "alert internal error" in says(f"{server} /certs/coordinator.pem")
    assert "alert" not in says(f"{server} /certs/worker.pem")
    # One of an authority of its own.
    own = "make_certs.sh /tmp/own worker > /dev/null"
    said = says(f"{own}; {talk} -connect tls-server-0-proxy:7443 -cert /tmp/own/worker.pem")
    assert "unknown ca" in said
    # What is behind the proxies listens to nobody else.
    for address in ("tls-server-0-proxy/6174", "tls-coordinator-proxy/7000"):
        said = says(f"timeout 5 bash -c ': < /dev/tcp/{address}' && echo open")
        assert "refused" in said
        assert "open" not in said
