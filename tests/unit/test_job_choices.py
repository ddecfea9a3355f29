"""Modes and tables in a job file: what can be chosen, and what can't be together."""

from __future__ import annotations

import pytest
from job_mistakes import LEAST, sentences

from fleet_config.job import Job, load_job
from fleet_config.modes import AsyncMode, BoundedMode, SyncMode

# What the engine ignores or does wrong is refused, with the reason and what to do.
REFUSED = {
    "entry=CountFilterEntry": "use admission.threshold",
    "rule.ProbabilityEntry=0.1": "use admission.threshold",
    "ShowClickEntry=[show, click]": "counted, from the label",
    "table_class=SSDSparseTable": "use more servers",
    "accessor_class=CtrCommonAccessor": "gradients reach the wrong values",
    "rule.clip_norm=1": "rule.bounds",
    "rule.weight_decay=0.1": "remove it",
    "rule.schedule={name: linear}": "remove it",
}


@pytest.mark.parametrize("setting", REFUSED)
def test_what_the_engine_ignores_is_refused(write, setting: str) -> None:
    override = f"tables.embedding.{setting}"
    key = override.partition("=")[0]
    text = f"{LEAST}tables: {{embedding: {{rule: {{name: naive}}}}}}\n"
    (sentence,) = sentences(write, text, override)
    assert sentence.startswith(f"--set {override}: there is no {key}: ")
    assert REFUSED[setting] in sentence


def test_a_mode_can_be_its_name_a_section_or_a_schedule(write) -> None:
    file = write(f"{LEAST}mode: async\n")
    sync = load_job(file, ["mode=sync"])
    assert sync.mode_of(0) == SyncMode()
    assert load_job(file, ["mode=[{mode: sync}]"]).mode_of(0) == SyncMode()
    bounded = load_job(file, ["mode={name: bounded, staleness: 16}", "mode.quorum=0.5"])
    assert bounded.mode_of(0) == BoundedMode(staleness=16, quorum=0.5)
    text = "mode=[{mode: async, epochs: 2}, {mode: {name: sync, strict: true}, epochs: 1}]"
    job = load_job(file, ["job.epochs=3", text])
    modes = [job.mode_of(epoch) for epoch in range(3)]
    assert modes == [AsyncMode(), AsyncMode(), SyncMode(strict=True)]
    assert job.mode_names == {"async", "sync"}
    assert Job.model_validate_json(job.model_dump_json()) == job
    assert len({one.digest() for one in (sync, bounded, job)}) == 3
    with pytest.raises(IndexError):
        job.mode_of(3)


def test_mistakes_in_a_schedule_have_their_lines(write) -> None:
    text = f"""{LEAST}\
mode:
  - mode: async
    epochs: 1
  - mode:
      name: geo
      strict: true
    epochs: one
  - {{mode: sync, epoch: 1}}
"""
    assert sentences(write, text) == [
        (
            "job.yaml:8: mode.1.mode.strict is not a setting of geo; geo takes name, steps and "
            "vocabulary"
        ),
        "job.yaml:9: mode.1.epochs must be a whole number, not the text 'one'",
        "job.yaml:10: mode.2.epoch is not a known key; did you mean mode.2.epochs?",
    ]
    (sentence,) = sentences(write, f"{LEAST}mode: [{{mode: async}}]\n", "mode.0.epochs=2")
    assert sentence == (
        "--set mode.0.epochs=2: mode is a list, not a section; replace it as a whole: "
        "--set mode=..."
    )


def test_geo_stands_alone_and_has_no_settings_of_the_others(write) -> None:
    text = f"""{LEAST}\
mode: geo
optimizer: {{name: sgd, accumulate: 4}}
tables:
  embedding:
    admission: {{threshold: 1}}
    eviction: {{below: 0.5}}
    delta_threshold: 1
"""
    assert sentences(write, text) == [
        (
            "job.yaml:4: optimizer.accumulate (4) is not for mode geo, which exchanges what many "
            "batches have changed; remove it and raise mode.steps"
        ),
        *(
            f"job.yaml:{line}: tables.embedding.{key} is not for mode geo, whose tables don't "
            "count shows and clicks; remove it"
            for line, key in enumerate(("admission.threshold", "eviction", "delta_threshold"), 7)
        ),
    ]
    (sentence,) = sentences(write, f"{LEAST}mode: geo\n", "data.task_rows=1000")
    assert sentence == (
        "--set data.task_rows=1000: data.task_rows (1000) is not for mode geo, which exchanges "
        "after each task and so cuts tasks of mode.steps batches; remove it"
    )
    schedule = "mode=[{mode: geo, epochs: 1}, {mode: async, epochs: 1}]"
    (sentence,) = sentences(write, LEAST, "job.epochs=2", schedule)
    assert sentence == (
        f"--set {schedule}: geo can't be combined with async in one job, as its tables are laid "
        "out differently; use one or the other"
    )


def test_sync_needs_one_thread(write) -> None:
    (sentence,) = sentences(write, f"{LEAST}mode: sync\n", "cluster.threads=2")
    assert sentence == (
        "--set cluster.threads=2: mode sync needs cluster.threads: 1, not 2, as the workers "
        "average their gradients one step at a time; use more workers"
    )


def test_strict_sync_needs_a_rule_that_only_adds(write) -> None:
    text = f"{LEAST}mode: {{name: sync, strict: true}}\n"
    (sentence,) = sentences(write, text, "cluster.workers=2")
    assert "needs rule: {name: naive} in table embedding: adagrad makes a step" in sentence
    naive = f"{text}tables: {{embedding: {{rule: {{name: naive}}}}}}\n"
    assert load_job(write(naive), ["cluster.workers=2"]).mode_of(0) == SyncMode(strict=True)
    assert load_job(write(text)).cluster.workers == 1


def test_one_kind_of_sync_in_a_schedule(write) -> None:
    stages = "[{mode: sync, epochs: 1}, {mode: {name: sync, strict: true}, epochs: 1}]"
    text = f"job: {{name: a, epochs: 2}}\ndata: {{path: d}}\nmode: {stages}\n"
    (sentence,) = sentences(write, text)
    assert sentence.endswith("sync is both strict and not in this schedule; make its stages alike")


def test_threads_that_bounded_or_accumulation_cannot_serve(write) -> None:
    text = f"{LEAST}mode: {{name: bounded, staleness: 3, check_every: 1}}\n"
    (sentence,) = sentences(write, text, "cluster.threads=4")
    assert sentence == (
        "job.yaml:3: staleness (3) must be at least cluster.threads (4), the steps that a worker "
        "makes at once; raise it"
    )
    (sentence,) = sentences(
        write, LEAST, "cluster.threads=2", "optimizer={name: sgd, accumulate: 3}"
    )
    assert "optimizer.accumulate (3) needs cluster.threads: 1, not 2" in sentence


def test_strict_sync_and_admission(write) -> None:
    text = (
        f"{LEAST}tables:\n  embedding:\n    admission: {{threshold: 2}}\n"
        "mode: {name: sync, strict: true}\n"
    )
    (sentence,) = sentences(write, text)
    assert "tables.embedding.admission.threshold is not for mode sync with strict" in sentence
