"""Roles from the environment: every contradiction."""

from __future__ import annotations

import pytest
from role_examples import PADDLE, PADDLE_SERVER, PADDLE_WORKER, SERVERS, tf_config

from fleet_config.errors import UserError
from fleet_config.roles import resolve_role

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
    "index and list disagree": (
        {**PADDLE_SERVER, "SERVER_INDEX": "0"},
        ["SERVER_INDEX=0", "rank 1", f"PADDLE_PSERVERS_IP_PORT_LIST={SERVERS}"],
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
