"""Roles from the environment: every form."""

from __future__ import annotations

from typing import Any

import pytest
from role_examples import PADDLE_SERVER, PADDLE_WORKER, SERVERS, tf_config

from fleet_config.roles import Role, resolve_role

TF_WORKERS = ("c:1", "d:1", "e:1")


def a_role(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, **fields}


ROLES = {
    "nothing": ({}, a_role("local", rank=None, coordinator=None)),
    "empty variables count as unset": (
        {"ROLE": "", "COORDINATOR": " ", "TF_CONFIG": ""},
        a_role("local"),
    ),
    "common names mean nothing alone": (
        {"POD_IP": "10.0.0.9", "SERVER_PORT": "8080", "PADDLE_TRAINER_ID": "0"},
        a_role("local"),
    ),
    "fleetrun server": (
        PADDLE_SERVER,
        a_role(
            "server",
            rank=1,
            endpoint="10.0.0.2:6001",
            worker_count=3,
            coordinator="10.0.0.1:7001",
            hosts_coordinator=False,
            source="TRAINING_ROLE=PSERVER",
        ),
    ),
    "fleetrun server 0 hosts the coordinator": (
        {**PADDLE_SERVER, "POD_IP": "10.0.0.1"},
        a_role("server", rank=0, hosts_coordinator=True, coordinator="10.0.0.1:7001"),
    ),
    "an own coordinator is not hosted": (
        {**PADDLE_SERVER, "POD_IP": "10.0.0.1", "COORDINATOR": "co:9"},
        a_role("server", rank=0, hosts_coordinator=False, coordinator="co:9"),
    ),
    "fleetrun worker": (
        PADDLE_WORKER,
        a_role(
            "worker",
            rank=2,
            endpoint="10.0.0.5",
            servers=("10.0.0.1:6001", "10.0.0.2:6001"),
            coordinator="10.0.0.1:7001",
        ),
    ),
    "fleetrun with a list on loopback and another POD_IP": (
        {
            "TRAINING_ROLE": "PSERVER",
            "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6001,127.0.0.1:6002",
            "POD_IP": "10.0.0.7",
            "PADDLE_PORT": "6002",
        },
        a_role("server", rank=1, endpoint="127.0.0.1:6002"),
    ),
    "paddle-operator: names in place of addresses, an id for servers too": (
        {
            "TRAINING_ROLE": "PSERVER",
            "PADDLE_TRAINING_ROLE": "PSERVER",
            "PADDLE_PSERVERS_IP_PORT_LIST": "job-ps-0:2379,job-ps-1:2379",
            "PADDLE_TRAINER_ENDPOINTS": "job-worker-0:2379",
            "PADDLE_TRAINERS": "job-worker-0",
            "PADDLE_TRAINERS_NUM": "1",
            "PADDLE_TRAINER_ID": "1",
            "POD_IP": "job-ps-1",
            "PADDLE_PORT": "2379",
        },
        a_role("server", rank=1, endpoint="job-ps-1:2379", coordinator="job-ps-0:3379"),
    ),
    "server of a coordinator": (
        {"ROLE": "SERVER", "COORDINATOR": "co:7000"},
        a_role("server", rank=None, endpoint="10.9.9.9:6174", coordinator="co:7000", servers=()),
    ),
    "server of a coordinator with its own port": (
        {"ROLE": "server", "COORDINATOR": "co:7000", "SERVER_PORT": "6200"},
        a_role("server", endpoint="10.9.9.9:6200"),
    ),
    "server of a coordinator in a pod": (
        {"ROLE": "SERVER", "COORDINATOR": "co:7000", "POD_IP": "10.1.1.1"},
        a_role("server", endpoint="10.1.1.1:6174"),
    ),
    "server that says its endpoint": (
        {"ROLE": "SERVER", "COORDINATOR": "co:7000", "SERVER_ENDPOINT": "ps-0.ps:6174"},
        a_role("server", endpoint="ps-0.ps:6174"),
    ),
    "worker of a coordinator": (
        {"ROLE": "WORKER", "COORDINATOR": "co:7000"},
        a_role("worker", rank=None, endpoint=None, worker_count=None),
    ),
    "worker of a coordinator with an index": (
        {"ROLE": "WORKER", "COORDINATOR": "co:7000", "WORKER_INDEX": "4"},
        a_role("worker", rank=4),
    ),
    "server of a coordinator with an index": (
        {
            "ROLE": "SERVER",
            "COORDINATOR": "co:7000",
            "SERVER_ENDPOINT": "a:1",
            "SERVER_INDEX": "1",
        },
        a_role("server", rank=1, endpoint="a:1", servers=(), coordinator="co:7000"),
    ),
    "coordinator": (
        {"ROLE": "COORDINATOR", "COORDINATOR": "[::1]:7000"},
        a_role("coordinator", endpoint="[::1]:7000", coordinator="[::1]:7000"),
    ),
    "static lists, server": (
        {"ROLE": "SERVER", "SERVER_ENDPOINTS": SERVERS, "SERVER_ENDPOINT": "10.0.0.1:6001"},
        a_role("server", rank=0, hosts_coordinator=True),
    ),
    "a list of one needs no own endpoint": (
        {"ROLE": "SERVER", "SERVER_ENDPOINTS": "ps:6174"},
        a_role("server", rank=0, endpoint="ps:6174"),
    ),
    "static lists, worker": (
        {
            "ROLE": "WORKER",
            "SERVER_ENDPOINTS": SERVERS,
            "WORKER_ENDPOINTS": "w0, w1:9",
            "WORKER_INDEX": "1",
        },
        a_role("worker", rank=1, endpoint="w1", workers=("w0", "w1:9"), worker_count=2),
    ),
    "the port of server 0 + 1000 would be no port": (
        {"ROLE": "WORKER", "SERVER_ENDPOINTS": "ps:65000"},
        a_role("worker", coordinator="ps:64000"),
    ),
    "TF_CONFIG ps": (
        {"TF_CONFIG": tf_config("ps", 1)},
        a_role("server", rank=1, endpoint="b:1", coordinator="a:1001", workers=TF_WORKERS),
    ),
    "TF_CONFIG chief is worker 0": (
        {"TF_CONFIG": tf_config("chief")},
        a_role("worker", rank=0, endpoint="c", worker_count=3),
    ),
    "TF_CONFIG workers follow the chief": (
        {"TF_CONFIG": tf_config("worker", "1")},
        a_role("worker", rank=2, endpoint="e"),
    ),
    "TF_CONFIG without a chief": (
        {"TF_CONFIG": tf_config("worker", 1, ps=["a:1"], worker=["d:1", "e:1"])},
        a_role("worker", rank=1, worker_count=2),
    ),
    "all forms that agree": (
        {
            "TRAINING_ROLE": "PSERVER",
            "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:1",
            "POD_IP": "a",
            "PADDLE_PORT": "1",
            "ROLE": "SERVER",
            "SERVER_ENDPOINT": "a:1",
            "TF_CONFIG": tf_config("ps", 0),
        },
        a_role("server", rank=0, source="TRAINING_ROLE=PSERVER"),
    ),
}


@pytest.mark.parametrize("case", ROLES)
def test_role(case: str) -> None:
    environ, expected = ROLES[case]
    role = resolve_role(environ, own_address=lambda _: "10.9.9.9")
    assert {name: getattr(role, name) for name in expected} == expected


def test_own_address_towards_a_coordinator_on_this_machine() -> None:
    role = resolve_role({"ROLE": "SERVER", "COORDINATOR": "127.0.0.1:7000"})
    assert role == Role(
        "server",
        endpoint="127.0.0.1:6174",
        coordinator="127.0.0.1:7000",
        source="ROLE=SERVER",
    )
