"""What is wrong with a job's model is known before anything starts, and without Paddle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job_mistakes import LEAST

from fleet_config.errors import UserError
from fleetps import models
from fleetps.checked_job import checked_job

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], str]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("  name: deepfn\n", "job.yaml:4: model.name: no model is called 'deepfn'; did you mean"),
        (
            "  name: dnn\n  params:\n    hiden: [8]\n",
            "job.yaml:6: model.params.hiden is not a parameter of dnn; did you mean hidden?",
        ),
        (
            "  params: {hidden: [8, 0]}\n",
            "job.yaml:4: model.params.hidden.1: Input should be greater than 0, not 0",
        ),
    ],
)
def test_it_is_told_where_it_is(write: Write, model: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        checked_job(write(f"{LEAST}model:\n{model}"))
    assert str(refused.value).startswith(sentence)
    with pytest.raises(UserError, match=r"--set model\.name=dn: .* did you mean dnn\?"):
        checked_job(write(LEAST), ["model.name=dn"])


def test_a_model_that_can_only_be_read_with_paddle_is_left_to_who_loads_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "unread", ["mine"])
    assert checked_job(write(LEAST), ["model.name=mine"]).model.name == "mine"
    with pytest.raises(UserError, match="not a parameter of dnn"):
        checked_job(write(LEAST), ["model={name: dnn, params: {hiden: 1}}"])


def test_paddle_is_not_loaded(write: Write) -> None:
    code = (
        "import sys\n"
        "from fleetps.checked_job import checked_job\n"
        "checked_job(sys.argv[1])\n"
        "from fleetps import models\n"
        "print(models.unread, 'paddle' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(Path(write(LEAST)).absolute())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_what_the_environment_replaces_is_checked_all_the_same(write: Write) -> None:
    file = write(f'{LEAST}cluster: {{servers: "1"}}\n')
    with pytest.raises(UserError, match=r"job.yaml:3: cluster\.servers must be a whole number"):
        checked_job(file, sizes=["cluster.servers=2"])
    file = write(f"{LEAST}cluster: {{servers: 3}}\ntables: {{embedding: {{shards: 4}}}}\n")
    assert checked_job(file, sizes=["cluster.servers=2"]).cluster.servers == 2
