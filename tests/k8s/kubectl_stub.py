"""Stands for kubectl and a cluster on which all goes well, for test_smoke_script.py.

It is no cluster: it only lets the script's own steps be seen. $STUB is a directory: `calls` gets a
line for each call; `state.json` is what the cluster remembers; `faults`, if it is there, has on
each line a regular expression, an exit code and what is printed instead, with tabs between.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

_HERE = Path(os.environ["STUB"])
_START = {
    "generation": 0, "rows_done": 0, "workers": 2, "servers": 2, "workers_lost": 0, "left": 0,
    "checkpoint": 1, "restarts": 0, "evicted": 0, "labelled": 0, "forwards": 0,
}  # fmt: skip
State = dict[str, int]

# What a call changes in the cluster.
_CHANGES = (
    (r"delete pod fleetps-worker", lambda s, _: _add(s, "workers_lost")),
    (r"delete pod fleetps-server", lambda s, _: _add(s, "generation")),
    (r"create --raw \S+/pods/fleetps-worker-\S+/eviction", lambda s, _: _add(s, "left")),
    (r"create --raw \S+/pods/fleetps-server-\S+/eviction", lambda s, _: _add(s, "evicted")),
    (r"wait --for=delete", lambda s, _: _add(s, "checkpoint")),
    (r"kill -STOP", lambda s, _: _add(s, "restarts")),
    (r'patch job .*"parallelism":(\d+)', lambda s, m: s.update(workers=int(m[1]))),
    (
        r"scale statefulset/fleetps-server --replicas=([1-9])",
        lambda s, m: s.update(servers=int(m[1])),
    ),
    (r"label namespace \S+ fleetps/watch=true", lambda s, _: s.update(labelled=1)),
    (r"label namespace \S+ fleetps/watch-", lambda s, _: s.update(labelled=0)),
)


def _add(state: State, key: str) -> None:
    state[key] += 1


def _status(state: State, namespace: str) -> dict[str, Any]:
    done = namespace.endswith("quick")
    return {
        "job": "done" if done else "running",
        "generation": state["generation"],
        "rows_done": state["rows_done"],
        "workers_lost": state["workers_lost"],
        "events": {"worker-left": state["left"]},
        "checkpoint": {"number": state["checkpoint"]},
        "workers": [{"state": "running"}] * state["workers"],
        "servers": [{"state": "serving"}] * state["servers"],
    }


def _answer(call: str, argv: list[str], state: State) -> tuple[int, str]:
    namespace = argv[argv.index("-n") + 1] if "-n" in argv else ""
    if "fleetps status" in call:
        return 0, str(eval(argv[-1], {"s": _status(state, namespace)}))  # noqa: S307
    answers: tuple[tuple[str, tuple[int, str]], ...] = (
        (r"^version", (0, "Server Version: v0.0.0-stub")),
        (r"run stranger", (1, 'Error: pods "stranger" is forbidden: violates PodSecurity')),
        (r"get events", (0, "")),
        (r"get secret", (0, "dG9rZW4=")),
        (r"get pods .*component=worker", (0, "pod/fleetps-worker-a\npod/fleetps-worker-b")),
        (r"get pods .*status.phase=Running$", (0, "")),
        (r"get pods", (0, "\n".join(f"pod/{i}" for i in range(5)))),
        (r"get pod stranger", (1, "")),
        (r"get pod .*restartCount", (0, str(state["restarts"]))),
        (r"get job .*conditions", (0, "PodFailurePolicy")),
        (r"get job .*status.failed", (0, "")),
        (r"get statefulset .*image", (0, "fleetps:0.1.0")),
        (r"test ! -e|test -s|getent|touch /app", (0, "")),
        (r"id -u", (0, "10001")),
        (r"touch /smoke", (1, "")),
        (r"kubernetes.default.svc", (0, "")),
        (r"fleetps-coordinator\..*7000", (0 if state["labelled"] else 1, "")),
        (r"create_connection", (1, "")),
        (r"fleetps-server-1/eviction", (int(state["evicted"] > 1), "")),
    )
    for pattern, answer in answers:
        if re.search(pattern, call):
            return answer
    return 0, ""


def main() -> int:
    argv = sys.argv[1:]
    call = " ".join(argv)
    with (_HERE / "calls").open("a", encoding="utf-8") as calls:
        calls.write(call.replace("\n", " ") + "\n")
    if argv[0] == "kustomize" and "REAL_KUBECTL" in os.environ:
        os.execv(os.environ["REAL_KUBECTL"], ["kubectl", *argv])  # noqa: S606
    file = _HERE / "state.json"
    state = json.loads(file.read_text()) if file.exists() else dict(_START)
    state["rows_done"] += 1000
    for pattern, change in _CHANGES:
        if found := re.search(pattern, call):
            change(state, found)
    file.write_text(json.dumps(state))
    faults = _HERE / "faults"
    for line in faults.read_text().splitlines() if faults.exists() else ():
        pattern, code, text = line.split("\t")
        if re.search(pattern, call):
            sys.stdout.write(text + "\n")
            return int(code)
    code, text = _answer(call, argv, state)
    sys.stdout.write(text + "\n" if text else "")
    return code


if __name__ == "__main__":
    sys.exit(main())
