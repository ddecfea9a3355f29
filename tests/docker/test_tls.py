"""The profile tls: the job trains, and who has no certificate, or another one, gets nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from engine import Engine
from stack import Stack
from test_jobs import check_result

pytestmark = pytest.mark.docker

PEERS = ("tls-server-0-proxy", "tls-server-1-proxy", "tls-coordinator-proxy")


class Stranger:
    """A container in the job's network, with what is in its volume of certificates if asked for."""

    def __init__(self, engine: Engine, stack: Stack, image: str) -> None:
        self._run: Any = engine.client.containers.run
        self._image = image
        self._network = f"{stack.project}_cluster"
        self._certificates = f"{stack.project}_certs"

    def says(self, script: str) -> str:
        return self._run(
            self._image,
            ["sh", "-c", f"({script}) 2>&1 || true"],
            network=self._network,
            volumes={self._certificates: {"bind": "/certs", "mode": "ro"}},
            remove=True,
        ).decode()


def test_it_trains_and_refuses_strangers(
    engine: Engine, images: dict[str, str], stack: Stack
) -> None:
    waiting = stack.start("--profile", "tls", "run", "--rm", "-T", "tls-done")
    try:
        stack.wait_for_log("tls-coordinator", "rows/s")
        stranger = Stranger(engine, stack, images["tls"])
        talk = "printf 'GET /health HTTP/1.0\\r\\n\\r\\n' | timeout 10 openssl s_client -quiet"
        known = "-CAfile /certs/authority.pem -cert"
        for peer in PEERS:
            assert "certificate required" in stranger.says(f"{talk} -connect {peer}:7443")
        # One of this job's authority, but of another role.
        server = f"{talk} -connect tls-server-0-proxy:7443 {known}"
        assert "alert internal error" in stranger.says(f"{server} /certs/coordinator.pem")
        assert "alert" not in stranger.says(f"{server} /certs/worker.pem")
        # One of an authority of its own.
        own = "make_certs.sh /tmp/own worker > /dev/null"
        said = stranger.says(
            f"{own}; {talk} -connect tls-server-0-proxy:7443 -cert /tmp/own/worker.pem"
        )
        assert "unknown ca" in said
        # What is behind the proxies listens to nobody else.
        for address in ("tls-server-0-proxy/6174", "tls-coordinator-proxy/7000"):
            said = stranger.says(f"timeout 5 bash -c ': < /dev/tcp/{address}' && echo open")
            assert "refused" in said
            assert "open" not in said
        output, _ = waiting.communicate(timeout=150)
        assert waiting.returncode == 0, f"{output}\n{stack.story()}"
        check_result(stack)
    finally:
        waiting.kill()
        waiting.communicate()
