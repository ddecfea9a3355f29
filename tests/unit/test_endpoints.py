"""host:port, with IPv6 in brackets."""

from __future__ import annotations

import pytest

from fleet_config.endpoints import Endpoint, coordinator_endpoint, parse_endpoint
from fleet_config.errors import UserError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("a:1", Endpoint("a", 1)),
        (" 10.0.0.1:65535 ", Endpoint("10.0.0.1", 65535)),
        ("[fe80::1]:80", Endpoint("fe80::1", 80)),
    ],
)
def test_endpoint_round_trip(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text, "x") == endpoint
    assert str(endpoint) == text.strip()


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:-1", "a:x", "a b:1", "a:१"])
def test_bad_endpoint(text: str) -> None:
    with pytest.raises(UserError, match="where"):
        parse_endpoint(text, "where")


def test_coordinator_beside_server_0() -> None:
    assert coordinator_endpoint("[::1]:6174") == "[::1]:7174"
    assert coordinator_endpoint("a:64535") == "a:65535"
    assert coordinator_endpoint("a:64536") == "a:63536"
