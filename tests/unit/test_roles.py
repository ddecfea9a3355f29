"""Roles from the environment: every form, every contradiction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet_config.endpoints import Endpoint, coordinator_endpoint, parse_endpoint
from fleet_config.errors import UserError
from fleet_config.roles import Role, resolve_role

SERVERS = "10.0.0.1:6001,10.0.0.2:6001"
WORKERS = "10.0.0.3:7001,10.0.0.4:7001,10.0.0.5:7001"

PADDLE = {
    "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS,
    "PADDLE_TRAINER_ENDPOINTS": WORKERS,
    "PADDLE_TRAINERS_NUM": "3",
}
PADDLE_SERVER = {
    **PADDLE,
    "TRAINING_ROLE": "PSERVER",
    "POD_IP": "10.0.0.2",
    "PADDLE_PORT": "6001",
}
PADDLE_WORKER = {
    **PADDLE,
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINER_ID": "2",
    "POD_IP": "10.0.0.5",
}


def tf_config(kind: str, index: object = 0, **cluster: list[str]) -> str:
    members = cluster or {"ps": ["a:1", "b:1"], "chief": ["c:1"], "worker": ["d:1", "e:1"]}
    return json.dumps({"cluster": members, "task": {"type": kind, "index": index}})


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


MISTAKES = {
    "roles disagree": (
        {**PADDLE_WORKER, "ROLE": "SERVER"},
        ["TRAINING_ROLE=TRAINER", "ROLE=SERVER"],
    ),
    "lists disagree": (
        {**PADDLE_WORKER, "SERVER_ENDPOINTS": "other:1"},
        [f"PADDLE_PSERVERS_IP_PORT_LIST={SERVERS}", "SERVER_ENDPOINTS=other:1"],
    ),
    "TF_CONFIG disagrees": (
        {"ROLE": "WORKER", "TF_CONFIG": tf_config("ps")},
        ["ROLE=WORKER", 'TF_CONFIG with task type "ps"'],
    ),
    "ranks disagree": (
        {**PADDLE_WORKER, "WORKER_INDEX": "1"},
        ["PADDLE_TRAINER_ID=2", "WORKER_INDEX=1"],
    ),
    "endpoint and port disagree": (
        {"ROLE": "SERVER", "COORDINATOR": "c:1", "SERVER_ENDPOINT": "a:1", "SERVER_PORT": "2"},
        ["SERVER_ENDPOINT=a:1", "SERVER_PORT=2"],
    ),
    "count and list disagree": (
        {**PADDLE_WORKER, "PADDLE_TRAINERS_NUM": "2"},
        ["PADDLE_TRAINERS_NUM=2", "PADDLE_TRAINER_ENDPOINTS=", "names 3"],
    ),
    "rank out of range": (
        {**PADDLE_WORKER, "PADDLE_TRAINER_ID": "3"},
        ["PADDLE_TRAINER_ID=3", "0 to 2"],
    ),
    "rank out of the range of a count": (
        {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_PSERVERS_IP_PORT_LIST": "a:1",
            "PADDLE_TRAINERS_NUM": "1",
            "PADDLE_TRAINER_ID": "1",
        },
        ["PADDLE_TRAINER_ID=1", "there are 1 workers"],
    ),
    "rank that is no number": ({**PADDLE_WORKER, "PADDLE_TRAINER_ID": "two"}, ["whole number"]),
    "own endpoint not in the list": (
        {**PADDLE_SERVER, "POD_IP": "10.0.0.8"},
        ["10.0.0.8:6001", "POD_IP=10.0.0.8", f"PADDLE_PSERVERS_IP_PORT_LIST={SERVERS}"],
    ),
    "own port not in a list on loopback": (
        {
            "TRAINING_ROLE": "PSERVER",
            "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6001",
            "POD_IP": "10.0.0.7",
            "PADDLE_PORT": "6002",
        },
        ["10.0.0.7:6002", "127.0.0.1:6001"],
    ),
    "which of the servers": (
        {"ROLE": "SERVER", "SERVER_ENDPOINTS": SERVERS},
        ["set SERVER_ENDPOINT"],
    ),
    "the same server twice": (
        {"ROLE": "WORKER", "SERVER_ENDPOINTS": "a:1,a:1"},
        ["SERVER_ENDPOINTS", "a:1 twice"],
    ),
    "no peer": ({"ROLE": "WORKER"}, ["ROLE=WORKER", "COORDINATOR=host:port", "SERVER_ENDPOINTS"]),
    "no list for Paddle": (
        {"TRAINING_ROLE": "TRAINER"},
        ["TRAINING_ROLE=TRAINER", "PADDLE_PSERVERS_IP_PORT_LIST"],
    ),
    "a coordinator without an address": ({"ROLE": "COORDINATOR"}, ["COORDINATOR=host:port"]),
    "unknown role": ({"ROLE": "PS"}, ["ROLE=PS", "SERVER, WORKER or COORDINATOR"]),
    "unknown Paddle role": (
        {**PADDLE, "TRAINING_ROLE": "HETER_TRAINER"},
        ["TRAINING_ROLE=HETER_TRAINER", "PSERVER or TRAINER"],
    ),
    "a coordinator but no role": ({"COORDINATOR": "c:1"}, ["COORDINATOR=c:1", "ROLE=SERVER"]),
    "a list but no role": (PADDLE, ["PADDLE_PSERVERS_IP_PORT_LIST", "no role"]),
    "a pod of Kubeflow without the launcher": (
        {"PADDLE_MASTER": "job-master-0:36543", "PADDLE_SERVER_NUM": "1"},
        ["PADDLE_MASTER=job-master-0:36543", "paddle.distributed.launch"],
    ),
    "no port": ({"ROLE": "WORKER", "COORDINATOR": "c"}, ["COORDINATOR", "'c'", "host:port"]),
    "port too high": ({"ROLE": "WORKER", "COORDINATOR": "c:70000"}, ["COORDINATOR", "65535"]),
    "an address as a URL": (
        {"ROLE": "WORKER", "COORDINATOR": "http://c:7000"},
        ["COORDINATOR", "host:port"],
    ),
    "IPv6 without brackets": ({"ROLE": "WORKER", "COORDINATOR": "::1:70"}, ["brackets"]),
    "IPv6 for a server": (
        {"ROLE": "WORKER", "SERVER_ENDPOINTS": "[::1]:6174"},
        ["[::1]:6174", "IPv6"],
    ),
    "a variable that Kubernetes made of a Service": (
        {"ROLE": "SERVER", "COORDINATOR": "c:1", "SERVER_PORT": "tcp://10.0.0.1:6174"},
        ["SERVER_PORT", "enableServiceLinks"],
    ),
    "evaluator": ({"TF_CONFIG": tf_config("evaluator")}, ["evaluator"]),
    "unknown task": ({"TF_CONFIG": tf_config("boss")}, ["'boss'", "ps, worker or chief"]),
    "no ps": ({"TF_CONFIG": tf_config("worker", 0, worker=["a:1"])}, ["no ps"]),
    "index out of range": ({"TF_CONFIG": tf_config("ps", 2)}, ["ps 2", "its cluster has 2"]),
    "negative index": ({"TF_CONFIG": tf_config("ps", -1)}, ["ps -1"]),
    "not JSON": ({"TF_CONFIG": "{"}, ["TF_CONFIG is not JSON"]),
    "JSON of another form": ({"TF_CONFIG": "[]"}, ["TF_CONFIG must have the form"]),
    "cluster of another form": (
        {"TF_CONFIG": tf_config("ps", 0, ps=[1])},  # type: ignore[list-item]
        ["cluster ps must be a list"],
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_is_one_sentence_that_names_the_variables(case: str) -> None:
    environ, expected = MISTAKES[case]
    with pytest.raises(UserError) as caught:
        resolve_role(environ, own_address=lambda _: "10.9.9.9")
    for part in expected:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_own_address_towards_a_coordinator_on_this_machine() -> None:
    role = resolve_role({"ROLE": "SERVER", "COORDINATOR": "127.0.0.1:7000"})
    assert role == Role(
        "server",
        endpoint="127.0.0.1:6174",
        coordinator="127.0.0.1:7000",
        source="ROLE=SERVER",
    )


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
