"""`fleetps checkpoint` as a user runs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkpoint_rig import job_of, make
from test_checkpoint_chains import history

from fleetps.checkpoint import commands
from fleetps.checkpoint.store import Checkpoints
from fleetps.checkpoint.upkeep import keep_up
from fleetps.cli import cli
from fleetps.coordinator.reports import CheckpointStatus
from fleetps.exits import exit_code_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        """Exit code, output, complaints."""
        words = ["checkpoint", *map(str, arguments)]
        code = exit_code_of(lambda: cli.main(words, standalone_mode=False))
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a job with checkpoints 1 and 2; only to be looked at."""
    job = job_of(tmp_path_factory.mktemp("shared"))
    for number in (1, 2):
        make(job, number, seed=number)
    return job.run_dir


@pytest.fixture
def run_dir(shared_run: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(shared_run, tmp_path / "small"))


def test_ls(run: Run, shared_run: Path) -> None:
    code, out, err = run("ls", "--run", shared_run)
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["CHECKPOINT", "KIND", "EPOCH", "ROWS", "TRAINED", "TABLE", "ROWS", "MB"]
    assert [line.split()[1:5] for line in lines] == [
        ["full", "2", "14", "80"],
        ["full", "1", "7", "80"],
    ]
    _, out, _ = run("ls", "--run", shared_run, "--json")
    newest, _ = json.loads(out)
    assert newest["number"] == 2
    assert (Path(newest["path"]) / "manifest.json").is_file()


def test_a_chain(run: Run, tmp_path: Path) -> None:
    """What ls, show, verify and rm say about deltas, here and in the mirror."""
    mirror = f"file://{tmp_path}/mirror"
    job = job_of(tmp_path, checkpoint={"full_every": 9, "mirror": mirror})
    store = Checkpoints(job.checkpoint_dir)
    for number, tables in enumerate(history(job, 4), start=1):
        make(job, number, tables=tables)
        assert [note.kind for note in keep_up(job)] == ["begins", "begins", "mirrored"]
    (job.run_dir / "job.json").write_text(job.model_dump_json())
    of_job = ("--run", job.run_dir)
    fourth, third, second, first = (one.name for one in store.list())

    def kinds(*options: str) -> list[str]:
        lines = run("ls", *of_job, *options)[1].splitlines()[1:]
        return [" ".join(line.split()[:-4]) for line in lines]

    older = [f"{third} delta on 2", f"{second} delta on 1", f"{first} full"]
    assert kinds() == [f"{fourth} full", *older]
    assert kinds("--mirror") == [f"{fourth} delta on 3", *older]
    newest, *_ = json.loads(run("ls", *of_job, "--mirror", "--json")[1])
    assert newest["path"] == f"{mirror}/small/{fourth}"
    assert (newest["kind"], newest["base"]) == ("delta", third)

    _, out, _ = run("show", "3", *of_job)
    assert f"kind          delta, builds on {second}, {first}; all of them: 0.0 MB\n" in out
    assert "MB: 10 rows changed, 4 removed\n" in out
    code, out, _ = run("verify", "3", *of_job)
    assert code == 0
    assert out.startswith(f"{third}: ")
    assert " files of 3 checkpoints with " in out
    code, _, err = run("rm", "2", *of_job)
    assert code == 2
    assert f"can't be removed, as {third} builds on it" in err
    (store.path / second / "dense.npz").unlink()
    code, out, err = run("verify", "--all", *of_job)
    assert code == 2
    assert [line.split(":")[0] for line in out.splitlines()] == [first, fourth]
    assert err.count("dense.npz: is missing, but manifest.json names it") == 2


def test_a_mirror_that_is_not_there(run: Run, shared_run: Path, tmp_path: Path) -> None:
    assert run("ls", "--mirror", "--run", shared_run)[2] == (
        "whose mirror? name the job file, --config FILE, or a run with one\n"
    )
    file = tmp_path / "job.yaml"
    file.write_text("job: {name: x}\ndata: {path: d}\n")
    code, _, err = run("ls", "--mirror", "--config", file)
    assert (code, err) == (2, "the job x has no mirror (checkpoint.mirror)\n")
    url = f"file://{tmp_path}/none"
    _, out, _ = run("ls", "--mirror", "--config", file, "--set", f"checkpoint.mirror={url}")
    assert out == f"no checkpoints in {url}/x\n"


def test_a_run_that_was_moved(run: Run, tmp_path: Path) -> None:
    """Its own checkpoints are meant, not those where it once was."""
    job = job_of(tmp_path)
    name = make(job).name
    (job.run_dir / "job.json").write_text(job.model_dump_json())
    moved = shutil.copytree(job.run_dir, tmp_path / "moved")
    assert run("rm", name, "--run", moved)[0] == 0
    assert not (moved / "checkpoints" / name).exists()
    assert name in run("ls", "--run", job.run_dir)[1]


def test_the_directory_follows_the_job_file(run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    job = job_of(tmp_path, checkpoint={"path": str(elsewhere)})
    made = make(job)
    job.run_dir.mkdir(parents=True)
    (job.run_dir / "job.json").write_text(job.model_dump_json())
    assert made.name in run("ls", "--run", job.run_dir)[1]
    file = tmp_path / "job.yaml"
    file.write_text(f"job: {{name: x}}\ndata: {{path: d}}\ncheckpoint: {{path: {elsewhere}}}\n")
    assert made.name in run("ls", "--config", file)[1]
    assert run("ls", "--config", file, "--set", f"checkpoint.path={tmp_path / 'none'}") == (
        *(0, f"no checkpoints in {tmp_path / 'none'}\n", ""),
    )


def test_show(run: Run, shared_run: Path) -> None:
    code, out, _ = run("show", "--run", shared_run)
    assert code == 0
    assert "by job small, 2 servers, 2 workers" in out
    assert "trained       14 rows, in epoch 2, of" in out
    assert "table         wide: 40 rows of dim 5, rule adam, in 2 shards" in out
    assert "dense         2 parameters, 9 values" in out
    name = next(
        path.name for path in (shared_run / "checkpoints").iterdir() if "000001" in path.name
    )
    for which in ("1", name):
        assert "trained       7 rows" in run("show", which, "--run", shared_run)[1]
    assert "trained       7 rows" in run("show", shared_run / "checkpoints" / name)[1]
    _, out, _ = run("show", "1", "--run", shared_run, "--json")
    assert json.loads(out)["progress"]["rows"] == 7


def test_verify(run: Run, run_dir: Path) -> None:
    code, out, err = run("verify", "--run", run_dir)
    assert (code, err) == (0, "")
    assert out.endswith(": 11 files with 80 rows are right\n")
    first, second = sorted((run_dir / "checkpoints").iterdir())
    (first / "dense.npz").write_bytes(b"")
    (second / "manifest.json").unlink()
    code, out, err = run("verify", "--run", run_dir, "--all")
    assert (code, out) == (2, "")
    damaged, none = err.splitlines()
    assert damaged.startswith(f"{first / 'dense.npz'}: has 0 bytes, but manifest.json says")
    assert none.startswith(f"{second}: has no manifest.json")


def test_what_newest_passes_over_is_told(run: Run, run_dir: Path) -> None:
    first, second = sorted((run_dir / "checkpoints").iterdir())
    (second / "manifest.json").write_text("{")
    code, out, err = run("verify", "newest", "--run", run_dir)
    assert (code, out) == (2, f"{first.name}: 11 files with 80 rows are right\n")
    assert err.startswith(f"{second / 'manifest.json'}: is damaged: not JSON")
    (first / "manifest.json").unlink()
    code, out, err = run("verify", "--run", run_dir)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 2


def test_diff(run: Run, shared_run: Path) -> None:
    code, out, _ = run("diff", "1", "2", "--run", shared_run)
    assert code == 0
    counts = [line.split()[-1] for line in out.splitlines() if line.startswith("  ")]
    assert counts == ["rows", "0", "0", "40", "40"] * 2
    assert "dense w: largest difference" in out
    assert "dense b" not in out
    assert run("diff", "1", "1", "--run", shared_run)[1].endswith("dense: the same\n")


def test_tables_that_can_not_be_compared(run: Run, tmp_path: Path, shared_run: Path) -> None:
    tables = {"embedding": {"dim": 4, "shards": 2}, "third": {"dim": 2, "shards": 2}}
    other = make(job_of(tmp_path / "other", tables=tables))
    _, out, _ = run("diff", "1", other.path, "--run", shared_run)
    assert "table embedding: can't be compared: dim 3 in A, 4 in B" in out
    assert "table wide: only in A" in out
    assert "table third: only in B" in out


def test_reshard_and_export(run: Run, shared_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "resharded"
    arguments = ["reshard", "2", out, "--servers", 3, "--shards", 6, "--run", shared_run]
    assert run(*arguments) == (0, f"{out}: 6 shards in each table, for 3 servers\n", "")
    assert run("verify", out)[0] == 0
    _, text, _ = run("diff", "2", out, "--run", shared_run)
    assert text.count("  the same                         40 rows\n") == 2
    code, text, _ = run("export", out, tmp_path / "exported")
    assert code == 0
    assert [Path(line.split(": ")[0]).name for line in text.splitlines()] == [
        *("dense.npz", "embedding.parquet", "wide.parquet")
    ]


def test_rm(run: Run, run_dir: Path) -> None:
    first, second = sorted((run_dir / "checkpoints").iterdir())
    assert run("rm", "1", "--run", run_dir) == (0, f"removed {first.name}\n", "")
    (second / "manifest.json").unlink()
    assert run("rm", second.name, "--run", run_dir)[0] == 0
    assert list((run_dir / "checkpoints").iterdir()) == []


MISTAKES = {
    "show": "which job's checkpoints? name its run directory, --run runs/NAME, or its job file",
    "show nowhere": "nowhere: is not a checkpoint: there is no such directory",
    "show 7 --run {run}": "has no checkpoint 7; it has 000002-",
    "show --run {none}": "none: is no run directory: it does not exist",
    "ls --run {run} --config x": "--run and --config name the job twice: give one of them",
    "verify --run {run}/logs": "logs: is no run directory: it does not exist",
    "rm newest --run {run}": "rm doesn't take newest, as a running job may have made another one",
    "rm 7 --run {run}": "has no checkpoint 7; see `fleetps checkpoint ls`",
    "now": "which job? name its run directory or its coordinator",
    "now --run {run}": "no coordinator has run in",
    "reshard 1 out --servers 3 --shards 4 --run {run}": "3 servers can't share 4 shards",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(run: Run, shared_run: Path, tmp_path: Path, words: str) -> None:
    code, out, err = run(*words.format(run=shared_run, none=tmp_path / "none").split())
    assert (code, out) == (2, "")
    assert MISTAKES[words] in err
    assert "Traceback" not in err


class Coordinator:
    """Answers `status` with one state of checkpoints after the other."""

    def __init__(self, *states: CheckpointStatus) -> None:
        self._states = iter(states)
        self.reasons: list[str] = []

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(checkpoint=next(self._states))

    def checkpoint(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def coordinate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coordinator]:
    """Lets the command talk to a coordinator with these states."""
    monkeypatch.setattr(commands, "_POLL_SECONDS", 0.0)

    def coordinate(*states: CheckpointStatus) -> Coordinator:
        coordinator = Coordinator(*states)
        monkeypatch.setattr(commands, "client_of", lambda *_: nullcontext(coordinator))
        return coordinator

    return coordinate


BEFORE = CheckpointStatus(number=3, failures=1)
PENDING = CheckpointStatus(number=3, failures=1, pending=True)


def test_now(run: Run, coordinate: Callable[..., Coordinator]) -> None:
    taken = CheckpointStatus(number=4, name="000004-x", pause=1.25)
    coordinator = coordinate(BEFORE, PENDING, taken)
    assert run("now", "--coordinator", "host:1") == (
        *(0, "000004-x: nobody trained for 1.2 s\n", ""),
    )
    assert coordinator.reasons == ["asked for on the command line"]


def test_now_that_failed(run: Run, coordinate: Callable[..., Coordinator]) -> None:
    coordinate(BEFORE, CheckpointStatus(number=3, failures=2, reason="no room"))
    assert run("now", "--coordinator", "host:1") == (
        *(75, "", "the checkpoint failed: no room; the job goes on\n"),
    )


def test_now_does_not_wait_for_ever(run: Run, coordinate: Callable[..., Coordinator]) -> None:
    coordinate(BEFORE)
    code, _, err = run("now", "--coordinator", "host:1", "--timeout", "0")
    assert code == 75
    assert "there is no checkpoint after 0 s" in err
