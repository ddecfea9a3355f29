"""The base and `fleetps k8s render` are the same, and nothing is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from findings import findings
from manifests import ROOT, Object, kustomize, load, title

import fleetps
from fleetps.k8s.render import Wanted, render, to_yaml

BASE = ROOT / "k8s" / "base"
GOLDEN = Path(__file__).with_name("golden")


def by_title(objects: list[Object]) -> dict[str, Object]:
    assert len({title(one) for one in objects}) == len(objects)
    return {title(one): one for one in objects}


def test_nothing_is_wrong_with_the_base() -> None:
    assert findings(kustomize(BASE)) == []


def test_render_gives_the_base(job_file) -> None:
    rendered = load(to_yaml(render(Wanted(job_file))))
    assert by_title(rendered) == by_title(kustomize(BASE))


def test_the_base_has_the_job_of_the_quickstart_and_this_version(job_file) -> None:
    assert (BASE / "job.yaml").read_text() == job_file.read_text()
    images = yaml.safe_load((BASE / "kustomization.yaml").read_text())["images"]
    assert images == [{"name": "fleetps", "newTag": fleetps.__version__}]
    loader = yaml.safe_load((BASE.parent / "loader.yaml").read_text())
    assert loader["spec"]["containers"][0]["image"] == f"fleetps:{fleetps.__version__}"


def test_the_config_map_is_named_as_kustomize_names_it(tmp_path, job_file) -> None:
    """Also with characters that Go's JSON writes in its own way."""
    text = f'# <b> & </b> \u2028# \u00e9 \\ " \t\n{job_file.read_text()}'
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text(
        "configMapGenerator: [{name: fleetps-job, files: [job.yaml]}]\n"
    )
    (made,) = kustomize(tmp_path)
    rendered = render(Wanted(tmp_path / "job.yaml"))[0]
    assert rendered["metadata"]["name"] == made["metadata"]["name"]
    assert rendered["data"] == made["data"]


def test_nothing_is_wrong_with_the_loader() -> None:
    assert findings([*kustomize(BASE), *load((BASE.parent / "loader.yaml").read_text())]) == []


def test_priorities_are_given_by_reference(tmp_path) -> None:
    component = ROOT / "k8s" / "components" / "priority"
    parts = (os.path.relpath(BASE, tmp_path), os.path.relpath(component, tmp_path))
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{parts[0]}]\ncomponents: [{parts[1]}]\n"
    )
    objects = kustomize(tmp_path)
    classes = load((component / "classes.yaml").read_text())
    assert findings(objects, [title(one) for one in classes]) == []
    missing = [sentence for sentence in findings(objects) if "PriorityClass" in sentence]
    assert len(missing) == 3


WANTED = {
    "quickstart": Wanted(Path("conf/quickstart.yaml")),
    "clicks": Wanted(
        Path("conf/quickstart.yaml"),
        image="registry.example.com/fleetps@sha256:" + "0" * 64,
        servers=4,
        workers=8,
        namespace="training",
        name="clicks",
    ),
}


@pytest.mark.parametrize("name", WANTED)
def test_golden(name, monkeypatch) -> None:
    """What was changed on purpose is written anew by `python tests/k8s/test_base.py`."""
    monkeypatch.chdir(ROOT)
    assert to_yaml(render(WANTED[name])) == (GOLDEN / f"{name}.yaml").read_text()


def test_a_job_of_another_name_and_size_is_whole(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    objects = render(WANTED["clicks"])
    assert findings(objects) == []
    assert {one["metadata"]["namespace"] for one in objects} == {"training"}
    assert all(one["metadata"]["name"].startswith("clicks") for one in objects)
    assert "fleetps-" not in to_yaml(objects[1:])


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "conf").glob("*.yaml")))
def test_every_job_file_of_ours_can_be_rendered(file) -> None:
    assert findings(render(Wanted(ROOT / "conf" / file))) == []


if __name__ == "__main__":
    for name, wanted in WANTED.items():
        (GOLDEN / f"{name}.yaml").write_text(to_yaml(render(wanted)))
