"""`fleetps k8s render`: what it refuses, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from fleet_config.errors import UserError
from fleetps.cli import cli
from fleetps.k8s.render import Wanted, overridden, render

QUICKSTART = Path(__file__).parents[2] / "conf" / "quickstart.yaml"


def test_it_prints_objects() -> None:
    done = CliRunner().invoke(
        cli, ["k8s", "render", "--config", str(QUICKSTART), "--servers", "3", "--workers", "5"]
    )
    assert done.exit_code == 0, done.output
    objects = {
        (one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.output)
    }
    assert objects["StatefulSet", "fleetps-server"]["spec"]["replicas"] == 3
    assert objects["Job", "fleetps-worker"]["spec"]["parallelism"] == 5
    coordinator = objects["StatefulSet", "fleetps-coordinator"]["spec"]["template"]["spec"]
    env = {one["name"]: one["value"] for one in coordinator["containers"][0]["env"]}
    assert (env["SERVERS"], env["WORKERS"]) == ("3", "5")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "Clicks"}, "--name Clicks: use lower-case letters"),
        ({"name": "c" * 41}, "at most 40"),
        ({"namespace": "a_b"}, "--namespace a_b: use lower-case letters"),
        ({"image": "a b"}, "--image 'a b' is not the name of an image"),
    ],
)
def test_names_that_kubernetes_would_refuse(options, said) -> None:
    with pytest.raises(UserError, match=said):
        render(Wanted(QUICKSTART, **options))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "data/quickstart",
            "/mnt/clicks",
            "data.path is /mnt/clicks, but the pods have their volume",
        ),
        (
            "data/quickstart",
            "database/x",
            "for it at /app/data; give it a path in there, such as data",
        ),
        ("output: runs ", "output: out ", "job.output is out, but the pods .* such as runs"),
    ],
)
def test_paths_for_which_the_pods_have_no_volume(tmp_path, old, new, said) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(QUICKSTART.read_text().replace(old, new))
    with pytest.raises(UserError, match=said):
        render(Wanted(file))


def test_a_job_file_that_is_none(tmp_path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        render(Wanted(tmp_path / "job.yaml"))


def test_what_the_pods_override_is_said(tmp_path) -> None:
    file = tmp_path / "job.yaml"
    deadlines = "cluster:\n  deadlines: {rendezvous: 30}\n"
    file.write_text(QUICKSTART.read_text().replace("cluster:\n", deadlines))
    objects = render(Wanted(file))
    (note,) = overridden(objects, file)
    assert note.endswith("cluster.deadlines.rendezvous is 30, but in the pods it is 600")
    assert overridden(objects, QUICKSTART) == []
