"""The environment variables that FleetPS reads to find its role, and what each claims.

Three families say the same things in different words. Each variable that is set becomes a claim;
roles.py checks that claims agree and makes a role of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import UserError
from fleet_config.explain import listed

# Signs that something wanted a cluster; with no role it must not quietly become a local run.
# Kubeflow and paddle-operator set them for Paddle's launcher.
LAUNCHER_VARIABLES = ("PADDLE_MASTER", "PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM")

_PADDLE_ROLES = {"PSERVER": "server", "TRAINER": "worker"}
_OUR_ROLES = {"SERVER": "server", "WORKER": "worker", "COORDINATOR": "coordinator"}
_TF_ROLES = {"ps": "server", "worker": "worker", "chief": "worker"}


@dataclass(frozen=True)
class Claim:
    """That a variable says something: what about, what, and `VARIABLE=text` for messages."""

    about: str
    value: Any
    says: str


def claims(environ: Mapping[str, str]) -> Iterator[Claim]:
    """All claims, in order of precedence. An empty variable counts as not set."""
    given = {name: text.strip() for name, text in environ.items() if text.strip()}
    yield from _claims_of(given, _PADDLE_READERS)
    yield from _claims_of(given, _OUR_READERS)
    if "TF_CONFIG" in given:
        yield from _tf_claims(given["TF_CONFIG"])


def _role_reader(roles: Mapping[str, str]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        role = roles.get(text.upper())
        if role is None:
            raise UserError(f"{name}={text} is not a role here; use {listed(roles, 'or')}")
        return role

    return read


def _endpoint(name: str, text: str) -> str:
    return str(parse_endpoint(text, name))


def _endpoints(name: str, text: str) -> tuple[str, ...]:
    endpoints = tuple(_endpoint(name, part) for part in text.split(",") if part.strip())
    for endpoint in endpoints:
        if endpoints.count(endpoint) > 1:
            raise UserError(f"{name}={text} has {endpoint} twice; each process needs its own")
    return endpoints


def _hosts(_name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _text(_name: str, text: str) -> str:
    return text


def _count(name: str, text: str) -> int:
    if text.startswith(("tcp://", "udp://")):
        raise UserError(
            f"{name}={text} was set by Kubernetes for a Service of that name; set {name} in the "
            "container or set enableServiceLinks: false in the pod"
        )
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"{name}={text} must be a whole number")
    return int(text)


_Readers = dict[str, tuple[str, Callable[[str, str], Any]]]

_PADDLE_READERS: _Readers = {
    "TRAINING_ROLE": ("kind", _role_reader(_PADDLE_ROLES)),
    "PADDLE_PSERVERS_IP_PORT_LIST": ("servers", _endpoints),
    "PADDLE_TRAINER_ENDPOINTS": ("workers", _hosts),
    "PADDLE_TRAINERS_NUM": ("worker_count", _count),
    "PADDLE_TRAINER_ID": ("worker_rank", _count),
    "POD_IP": ("host", _text),
    "PADDLE_PORT": ("port", _count),
}
_OUR_READERS: _Readers = {
    "ROLE": ("kind", _role_reader(_OUR_ROLES)),
    "COORDINATOR": ("coordinator", _endpoint),
    "SERVER_ENDPOINTS": ("servers", _endpoints),
    "WORKER_ENDPOINTS": ("workers", _hosts),
    "SERVER_ENDPOINT": ("endpoint", _endpoint),
    "SERVER_PORT": ("port", _count),
    "SERVER_INDEX": ("server_rank", _count),
    "WORKER_INDEX": ("worker_rank", _count),
    "SERVERS_AT": ("servers_at", _text),
    "WORKERS_AT": ("workers_at", _text),
}

VARIABLES = (*_PADDLE_READERS, *_OUR_READERS, "TF_CONFIG", *LAUNCHER_VARIABLES)


def _claims_of(given: Mapping[str, str], readers: _Readers) -> Iterator[Claim]:
    for name, (about, read) in readers.items():
        if name in given:
            yield Claim(about, read(name, given[name]), f"{name}={given[name]}")


def _tf_claims(text: str) -> Iterator[Claim]:
    cluster, kind, index = _parse_tf_config(text)
    chiefs = cluster.get("chief", [])
    workers = (*chiefs, *cluster.get("worker", []))
    servers = _endpoints("TF_CONFIG", ",".join(cluster.get("ps", [])))
    yield Claim("kind", _TF_ROLES[kind], f'TF_CONFIG with task type "{kind}"')
    yield Claim("servers", servers, f"TF_CONFIG with ps {list(servers)}")
    yield Claim("workers", workers, f"TF_CONFIG with chief and worker {list(workers)}")
    if kind == "ps":
        yield Claim("endpoint", servers[index], f"TF_CONFIG with ps {index} at {servers[index]}")
    else:
        # The chief is worker 0, the others follow it.
        rank = index if kind == "chief" else len(chiefs) + index
        yield Claim("worker_rank", rank, f"TF_CONFIG with {kind} {index}, worker {rank} in all")


def _parse_tf_config(text: str) -> tuple[dict[str, list[str]], str, int]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"TF_CONFIG is not JSON: {error.msg} at character {error.pos}") from None
    cluster = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise UserError('TF_CONFIG must have the form {"cluster": {"ps": [...]}, "task": {...}}')
    kind, index = task.get("type"), task.get("index")
    if kind == "evaluator":
        raise UserError(
            "TF_CONFIG names this task an evaluator, which FleetPS does not need: its workers "
            "evaluate; remove the evaluator replica"
        )
    if kind not in _TF_ROLES:
        raise UserError(f"TF_CONFIG has task type {kind!r}; use {listed(_TF_ROLES, 'or')}")
    for name, members in cluster.items():
        if not isinstance(members, list) or not all(isinstance(one, str) for one in members):
            raise UserError(f"TF_CONFIG: cluster {name} must be a list of host:port texts")
    if not cluster.get("ps"):
        raise UserError("TF_CONFIG has no ps in its cluster; FleetPS needs at least one")
    # TensorFlow itself takes the index as a number or as text.
    members = cluster.get(kind, [])
    if not str(index).isdigit() or int(str(index)) >= len(members):
        raise UserError(f"TF_CONFIG has task {kind} {index}, but its cluster has {len(members)}")
    return cluster, kind, int(str(index))
