"""What the coordinator does with checkpoints after they were made, and with those in the mirror."""

import shutil
import time

import pytest
from coordinator_rig import Rig, make_job

from fleet_config.errors import TryAgain, UserError
from fleetps.coordinator.messages import INITIALISED
from fleetps.coordinator.service import JobService

SECONDS = 60


def rig_with(tmp_path, **checkpoint):
    every = {"epochs": None, "tasks": 2}
    mirror = f"file://{tmp_path}/mirror"
    splits = {"train": [150], "test": [20]}
    checkpoint = {"every": every, "mirror": mirror, **checkpoint}
    rig = Rig(tmp_path, splits=splits, checkpoint=checkpoint)
    rig.service.tick()
    rig.assemble()
    return rig


def take_checkpoint(rig):
    for _ in range(2):
        rig.finish_task("w0", rig.task("w0"))
    for name in ("w0", "w1", "w0"):
        rig.step(name)
    return rig.service.status().checkpoint.name


def until_kept_up(rig):
    end = time.monotonic() + SECONDS
    while rig.service.status().checkpoint.upkeep:
        assert time.monotonic() < end
        time.sleep(0.02)
        rig.service.tick()


def test_a_copy_is_made_and_found_again(tmp_path):
    rig = rig_with(tmp_path)
    name = take_checkpoint(rig)
    assert rig.service.status().checkpoint.upkeep
    until_kept_up(rig)
    url = f"file://{tmp_path}/mirror/test-job"
    assert [text.split(" in ")[0] for text in rig.texts("mirrored")] == [f"copied {name} to {url}"]
    rig.service.close()

    shutil.rmtree(rig.job.run_dir)
    rig.service = rig.start()
    assert rig.service.status().rows_done == 50
    assert rig.service.status().checkpoint.name == name
    assert (rig.job.checkpoint_dir / name / "manifest.json").is_file()


def test_only_the_checkpoints_are_lost(tmp_path):
    """They were on another disk than the coordinator's state."""
    rig = rig_with(tmp_path, path=str(tmp_path / "elsewhere"))
    names = [take_checkpoint(rig)]
    until_kept_up(rig)
    names.append(take_checkpoint(rig))
    until_kept_up(rig)
    rig.service.close()
    shutil.rmtree(tmp_path / "elsewhere")
    rig.service = JobService(rig.job, rig.dataset, again=True)
    rig.service.tick()
    assert rig.service.status().rows_done == 100
    assert rig.service.stop("enough").restore == str(tmp_path / "elsewhere" / names[1])
    assert [entry.name for entry in (tmp_path / "elsewhere").iterdir()] == names[1:]


def test_what_is_there_is_not_fetched(tmp_path):
    rig = rig_with(tmp_path)
    name = take_checkpoint(rig)
    until_kept_up(rig)
    rig.service.close()
    shutil.rmtree(tmp_path / "mirror")
    (tmp_path / "mirror").write_text("")  # can't even be listed
    rig.service = JobService(rig.job, rig.dataset, again=True)
    assert rig.service.status().checkpoint.name == name


@pytest.mark.parametrize("resume", ["never", "auto"])
def test_a_mirror_that_is_away(tmp_path, resume):
    """Without a checkpoint here nobody can say whether there is one, so the job doesn't begin."""
    (tmp_path / "mirror").write_text("")
    if resume == "never":
        rig_with(tmp_path, resume=resume)
        return
    with pytest.raises(TryAgain, match=r"mirror/test-job: can't be listed: .*Not a directory"):
        rig_with(tmp_path, resume=resume)


def test_a_mirror_that_nothing_can_read(tmp_path):
    with pytest.raises(UserError, match=r"checkpoint\.mirror: nowhere://x: can't be used"):
        rig_with(tmp_path, mirror="nowhere://x", resume="never")


def test_those_of_a_finished_run_are_left_there(tmp_path):
    rig = rig_with(tmp_path)
    rig.work("w0", "w1")
    until_kept_up(rig)
    rig.service.close()
    shutil.rmtree(rig.job.run_dir)
    rig.job = make_job(rig.root, checkpoint=rig.job.checkpoint.model_dump())
    rig.service = rig.start()
    assert rig.service.status().rows_done == 0
    assert not rig.job.checkpoint_dir.exists()


def test_a_job_that_is_done_waits_for_the_last_copy(tmp_path):
    rig = rig_with(tmp_path)
    rig.work("w0", "w1")
    for name in ("w0", "w1", "s0"):
        rig.service.heartbeat(name, "exited")
    assert rig.state().job == "done"
    assert not rig.service.ended()
    until_kept_up(rig)
    assert rig.service.ended()
    copied = " ".join(rig.texts("mirrored"))
    assert rig.service.status().checkpoint.name in copied


def stop(rig):
    assert rig.service.stop("enough").job == "stopping"
    for name in ("w0", "w1", "s0"):
        rig.service.heartbeat(name, "exited")


def test_a_job_that_was_stopped_waits_too(tmp_path):
    rig = rig_with(tmp_path)
    name = take_checkpoint(rig)
    stop(rig)
    assert not rig.service.ended()
    until_kept_up(rig)
    assert rig.service.ended()
    (text,) = rig.texts("mirrored")
    assert text.startswith(f"copied {name} to ")


def test_but_no_longer_than_it_may(tmp_path):
    """The next start of the job makes up for it."""
    rig = rig_with(tmp_path, mirror=f"file://{tmp_path}/file/mirror")
    (tmp_path / "file").write_text("")
    name = take_checkpoint(rig)
    stop(rig)
    deadlines = rig.job.cluster.deadlines
    rig.clock.advance(deadlines.grace + deadlines.stop - 0.1)
    rig.service.tick()
    assert not rig.service.ended()
    rig.clock.advance(0.1)
    rig.service.tick()
    assert rig.service.ended()
    (text,) = rig.texts("upkeep-failed")
    assert text.endswith(
        f"the job stops; tried again when the job is started again, or copy "
        f"{rig.job.checkpoint_dir}/{name} to file://{tmp_path}/file/mirror/test-job/{name} by hand"
    )
    rig.service.close()

    (tmp_path / "file").unlink()
    rig.service = JobService(rig.job, rig.dataset, again=True)
    rig.service.tick()
    assert rig.texts("mirrored") == []
    rig.begin_again("s0", "w0", "w1")
    rig.service.arrive("w0", INITIALISED)
    until_kept_up(rig)
    (text,) = rig.texts("mirrored")
    assert text.startswith(f"copied {name} to ")
