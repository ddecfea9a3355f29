"""Debian's Prometheus with monitoring/ as it is, looking at a real job."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from isolation import free_port
from live_job import EPOCHS, ROWS, LiveJob, needs
from running_job import ROOT, Program, one, wait_until

# One process has the job for all tests.
pytestmark = [pytest.mark.monitoring, pytest.mark.xdist_group("monitoring")]

MONITORING = ROOT / "monitoring"
DASHBOARDS = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))
_SECONDS = 60.0


def promtool(*arguments: object) -> None:
    program = needs("promtool", "prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "rules.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> Iterator[tuple[str, str]]:
    """(title, expression), annotations too."""
    for file in DASHBOARDS:
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{board['title']}: {panel['title']}", target["expr"]
        for annotation in board["annotations"]["list"]:
            yield f"{board['title']}: {annotation['name']}", annotation["expr"]


_WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression, by what else a name could be."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", text)
    names = re.findall(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\w*\s*\()", text)
    return {name for name in names if name.lower() not in _WORDS}


def test_names_in_expressions() -> None:
    expression = 'sum by (role) (rate(a_total{x="b{c}"}[5m])) / on (x) group_left () d:e > 0 and f'
    assert metrics_in(expression) == {"a_total", "d:e", "f"}


def test_the_files_are_what_prometheus_wants() -> None:
    promtool("check", "config", "--syntax-only", MONITORING / "prometheus.yml")
    promtool("check", "rules", MONITORING / "rules.yml")


def test_the_alerts_fire_when_they_should_and_not_otherwise() -> None:
    promtool("test", "rules", Path(__file__).with_name("rules_test.yml"))


def test_every_alert_is_tested() -> None:
    cases = yaml.safe_load(Path(__file__).with_name("rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in cases
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


class Prometheus:
    def __init__(self, directory: Path, port: int, job: LiveJob) -> None:
        """monitoring/prometheus.yml with this job's addresses, ten times as often."""
        text = (MONITORING / "prometheus.yml").read_text()
        for here, there in (
            ("coordinator:7000", job.address),
            ("/run/secrets/fleetps_token", str(job.token_file)),
            (": 5s", ": 1s"),
            (": 4s", ": 1s"),
        ):
            assert here in text
            text = text.replace(here, there)
        (directory / "prometheus.yml").write_text(text)
        shutil.copy(MONITORING / "rules.yml", directory)
        promtool("check", "config", directory / "prometheus.yml")
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10)
        self.program = Program(
            [
                needs("prometheus", "prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            directory,
            label="prometheus",
        )

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def values(self, expression: str) -> dict[str, float]:
        """By all labels but those that Prometheus adds."""
        found = self.get("/query", query=expression)["result"]
        return {_labels(one["metric"]): float(one["value"][1]) for one in found}

    def answers(self) -> bool:
        try:
            return self._http.get("/status/runtimeinfo").status_code == 200
        except httpx.TransportError:
            return False


def _labels(metric: dict[str, str]) -> str:
    added = ("__name__", "instance", "job")
    return ",".join(f"{name}={value}" for name, value in metric.items() if name not in added)


@pytest.fixture(scope="module")
def prometheus(live_job: LiveJob, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    needs("prometheus", "prometheus")
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), free_port(), live_job)
    try:
        wait_until(server.answers, _SECONDS, "Prometheus", server.program.everything)
        wait_until(lambda: sum(server.values("up").values()) == 3, _SECONDS, "all targets")
        yield server
    finally:
        server.program.send(signal.SIGTERM)
        server.program.exit_code()


def test_the_coordinator_and_both_servers_are_scraped(
    prometheus: Prometheus, live_job: LiveJob
) -> None:
    targets = prometheus.get("/targets", state="active")["activeTargets"]
    found = {(one["labels"]["job"], one["labels"].get("rank"), one["health"]) for one in targets}
    assert found == {
        ("fleetps", None, "up"), ("fleetps-servers", "0", "up"), ("fleetps-servers", "1", "up"),
    }  # fmt: skip
    assert prometheus.values("fleetps_rows_to_train") == {"": ROWS * EPOCHS}
    everybody = {"role=server,state=serving": 2, "role=worker,state=running": 2}
    members = 'fleetps_members{state=~"running|serving"} > 0'
    # Another test may have killed one, which is started again.
    wait_until(lambda: prometheus.values(members) == everybody, _SECONDS, "all members")
    before = prometheus.values("fleetps_rows_trained")[""]
    wait_until(
        lambda: prometheus.values("fleetps_rows_trained")[""] > before, _SECONDS, "more rows"
    )
    assert before <= live_job.status().rows_done


def test_every_metric_of_a_panel_or_rule_is_there(prometheus: Prometheus) -> None:
    wanted = {name for _, expression in panels() for name in metrics_in(expression)}
    wanted |= {name for rule in rules() for name in metrics_in(rule["expr"])}
    assert len(wanted) > 30

    def missing() -> set[str]:
        return wanted - set(prometheus.get("/label/__name__/values"))

    wait_until(lambda: not missing(), _SECONDS, "every metric", lambda: f"missing: {missing()}")


def test_every_panel_can_be_drawn_and_every_rule_works(prometheus: Prometheus) -> None:
    for title, expression in panels():
        assert prometheus.get("/query", query=expression)["resultType"] == "vector", title

    def trouble() -> list[str]:
        groups = prometheus.get("/rules")["groups"]
        states = [rule for group in groups for rule in group["rules"]]
        assert len(states) == len(rules())
        return [f"{one['name']}: {one}" for one in states if one["health"] != "ok"]

    wait_until(lambda: not trouble(), _SECONDS, "rules", lambda: str(trouble()))
    nobody = {"role=server": 0, "role=worker": 0}
    wait_until(
        lambda: prometheus.values("fleetps:members:missing") == nobody, _SECONDS, "all members"
    )


def test_a_killed_worker_is_an_alert(prometheus: Prometheus) -> None:
    lost = 'fleetps_events_total{kind="worker-lost"}'
    before = sum(prometheus.values(lost).values())
    one("fleetps.training.worker", env="FLEETPS_RANK=1").kill()

    def firing() -> set[str]:
        alerts = prometheus.get("/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    wait_until(
        lambda: firing() == {"FleetpsWorkerLost"}, _SECONDS, "the alert", lambda: str(firing())
    )
    assert prometheus.values(lost) == {"kind=worker-lost": before + 1}
