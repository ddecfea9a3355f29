"""Environments that are right, for the tests of roles."""

from __future__ import annotations

import json

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
