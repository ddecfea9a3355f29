"""The job file: what is read, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from job_mistakes import LEAST, sentences

from fleet_config.errors import UserError
from fleet_config.job import Job, load_job
from fleet_config.modes import AsyncMode
from fleet_config.optimizers import Adam, CosineSchedule, Sgd
from fleet_config.tables import AdagradRule

CONF = Path(__file__).parents[2] / "conf"


def test_least_job_has_every_default(write) -> None:
    job = load_job(write(LEAST))
    assert job.cluster.servers == 1
    assert job.cluster.deadlines.rendezvous == 60
    assert job.data.task_rows == "auto"
    assert job.tables["embedding"].rule == AdagradRule()
    assert job.optimizer == Adam()
    assert job.mode_of(0) == AsyncMode()
    assert job.run_dir == Path.cwd() / "runs" / "x"
    assert job.data.path == Path.cwd() / "d"


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.name)
def test_files_in_conf_load_and_survive_json(file: Path) -> None:
    job = load_job(file)
    again = Job.model_validate_json(job.model_dump_json())
    assert again == job
    assert again.digest() == job.digest()


def test_reference_shows_every_key() -> None:
    def keys(node: object, prefix: str = "") -> set[str]:
        if not isinstance(node, dict):
            return {prefix}
        return {leaf for key, inner in node.items() for leaf in keys(inner, f"{prefix}.{key}")}

    written = keys(yaml.safe_load((CONF / "reference.yaml").read_text(encoding="utf-8")))
    known = keys(load_job(CONF / "reference.yaml").model_dump())
    assert written == known


def test_overrides_are_typed_and_the_last_one_wins(write) -> None:
    job = load_job(
        write(LEAST),
        [
            "cluster.servers=3",
            "optimizer={name: sgd, learning_rate: 1e-2}",
            "optimizer.clip_norm=2",
            "optimizer.schedule={name: cosine, warmup_steps: 10}",
            "data.shuffle=false",
            "model.params.hidden=[8, 4]",
            "cluster.servers=4",
        ],
    )
    assert job.cluster.servers == 4
    assert job.optimizer == Sgd(
        learning_rate=0.01, clip_norm=2.0, schedule=CosineSchedule(warmup_steps=10)
    )
    assert job.data.shuffle is False
    assert job.model.params == {"hidden": [8, 4]}


def test_paths_follow_the_current_directory_and_home(write, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    job = load_job(write(LEAST), ["data.path=~/d", "job.output=/r"])
    assert job.data.path == Path("/home/someone/d")
    assert job.run_dir == Path("/r/x")


def test_where_checkpoints_are(write) -> None:
    job = load_job(write(LEAST), ["job.output=/r"])
    assert job.checkpoint_dir == Path("/r/x/checkpoints")
    wanted = ["checkpoint={path: c, resume: d, warm_start: null}"]
    job = load_job(write(LEAST), wanted)
    assert job.checkpoint_dir == Path.cwd() / "c"
    assert job.checkpoint.resume == Path.cwd() / "d"
    assert Job.model_validate_json(job.model_dump_json()) == job
    assert load_job(write(LEAST), ["checkpoint.resume=never"]).checkpoint.resume == "never"


def test_digest_covers_what_peers_must_share_and_nothing_else(write) -> None:
    file = write(LEAST)
    digest = load_job(file).digest()
    for same in ("cluster.threads=2", "cluster.workers=5", "observe.log_format=json"):
        assert load_job(file, [same]).digest() == digest
    for other in ("job.seed=2", "data.batch_size=64", "cluster.servers=2", "model.name=dnn"):
        assert load_job(file, [other]).digest() != digest
    assert load_job(file).agreement()["data.batch_size"] == 512


NUMBERS = {"1e-3": 0.001, "1.5E+2": 150.0, ".5": 0.5, "2.": 2.0, "1": 1.0}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_as_people_write_them(write, text: str) -> None:
    job = load_job(write(LEAST), [f"optimizer={{name: sgd, learning_rate: {text}}}"])
    assert job.optimizer.learning_rate == NUMBERS[text]


# --set argument -> the sentence behind it
MISTAKES = {
    "modle.name=dnn": "modle is not a known key; did you mean model?",
    "model.nam=dnn": "model.nam is not a known key; did you mean model.name?",
    "batch_size=1": (
        "batch_size is not a known key; did you mean data.batch_size or evaluate.batch_size?"
    ),
    "observe.colour=1": (
        "observe.colour is not a known key; observe takes progress_seconds, log_format, "
        "tensorboard and gradient_norm"
    ),
    "optimizer={name: adam, momentum: 0.9}": (
        "optimizer.momentum is not a setting of adam; adam takes learning_rate, weight_decay, "
        "clip_norm, accumulate, schedule, name, beta1, beta2 and epsilon"
    ),
    "optimizer={name: adma}": (
        "optimizer.name must be sgd, momentum, adagrad, adam or adamw, not the text 'adma'; "
        "did you mean adam?"
    ),
    "optimizer.learning_rate=1": (
        "optimizer.name is missing; use sgd, momentum, adagrad, adam or adamw"
    ),
    "optimizer={name: sgd, schedule: {name: step}}": (
        "optimizer.schedule.step_size is missing; step needs it"
    ),
    "optimizer={name: sgd, clip_norm: 0}": (
        "optimizer.clip_norm must be a number greater than 0, not 0"
    ),
    "optimizer={name: adam, beta1: 1}": "optimizer.beta1 must be less than 1, not 1",
    "optimizer={name: sgd, schedule: {name: linear, warmup_steps: 9, total_steps: 9}}": (
        "in optimizer.schedule, warmup_steps must be less than total_steps"
    ),
    "tables.embedding.rule={name: naive, initial_g2sum: 3}": (
        "tables.embedding.rule.initial_g2sum is not a setting of naive; did you mean "
        "tables.embedding.rule.initial_range?"
    ),
    "tables.embedding.rule={name: adam, bounds: [1, 1]}": (
        "tables.embedding.rule.bounds must be [low, high], two numbers with low < high, "
        "not the list [1, 1]"
    ),
    "tables.embedding.shards=0": (
        "tables.embedding.shards must be auto or a whole number of at least 1, not 0"
    ),
    "tables.embedding.shards=many": (
        "tables.embedding.shards must be auto or a whole number of at least 1, not the text 'many'"
    ),
    "tables.My-Table.dim=8": (
        "tables.My-Table must be named with lower-case letters, digits and _ (1-40), "
        "not the text 'My-Table'"
    ),
    "tables={}": "tables must be a section with at least one entry, not an empty section",
    "cluster.servers=two": "cluster.servers must be a whole number, not the text 'two'",
    'cluster.servers="2"': "cluster.servers must be a whole number, not the text '2'",
    "cluster.servers=1.5": "cluster.servers must be a whole number, not 1.5",
    "cluster.servers=true": "cluster.servers must be a whole number, not true",
    "cluster.servers=0": "cluster.servers must be at least 1, not 0",
    "cluster.servers=": "cluster.servers must be a whole number, not empty",
    "cluster.heartbeat=.nan": "cluster.heartbeat must be a finite number, not nan",
    "data.shuffle=yes": "data.shuffle must be true or false, not the text 'yes'",
    "data.batch_size=100000": "data.batch_size must be at most 65536, not 100000",
    "data.path=[a]": "data.path must be a path, not the list ['a']",
    'job.output="a\\0b"': (
        "job.output must be a path without NUL characters, not the text 'a\\x00b'"
    ),
    "data=d": "data must be a section (keys below it), not the text 'd'",
    "data.synthetic={rows: 5}": "data.synthetic.test_rows is missing; it has no default",
    "job={}": "job.name is missing; it has no default",
    "job.name=My Job": (
        "job.name must be lower-case letters, digits and dashes (1-40), not the text 'My Job'"
    ),
    "observe.log_format=xml": "observe.log_format must be text or json, not the text 'xml'",
    "mode=turbo": "mode must be async, sync, geo or bounded, not the text 'turbo'",
    "mode=half_async": (
        "mode must be async, sync, geo or bounded, not the text 'half_async'; did you mean async?"
    ),
    "mode={name: sycn}": (
        "mode.name must be async, sync, geo or bounded, not the text 'sycn'; did you mean sync?"
    ),
    "mode={name: 3}": "mode.name must be async, sync, geo or bounded, not 3",
    "mode={strict: true}": "mode.name is missing; use async, sync, geo or bounded",
    "mode={name: geo, strict: true}": (
        "mode.strict is not a setting of geo; geo takes name, steps and vocabulary"
    ),
    "mode={name: geo, vocabulary: 0}": (
        "mode.vocabulary must be auto or a whole number of at least 2, not 0"
    ),
    "mode={name: bounded, quorum: 0}": "mode.quorum must be a number greater than 0, not 0",
    "mode={name: bounded, staleness: 4}": (
        "in mode, check_every (8) must be at most staleness (4); lower it"
    ),
    "mode.strict=true": "mode.name is missing; use async, sync, geo or bounded",
    "mode=3": "mode must be the name of a mode or a section with it, not 3",
    "mode=[]": "mode must be a mode or a list of at least one stage, not the list []",
    "mode=[sync]": "mode.0 must be a section (keys below it), not the text 'sync'",
    "mode=[{epochs: 1}]": "mode.0.mode is missing; use async, sync, geo or bounded",
    "mode=[{mode: sync, epoch: 1}]": (
        "mode.0.epoch is not a known key; did you mean mode.0.epochs?"
    ),
    "mode=[{mode: {name: bounded, stale: 3}, epochs: 1}]": (
        "mode.0.mode.stale is not a setting of bounded; did you mean mode.0.mode.staleness?"
    ),
    "mode=[{mode: async, epochs: 1}, {mode: ssp, epochs: 1}]": (
        "mode.1.mode must be async, sync, geo or bounded, not the text 'ssp'; did you mean bounded?"
    ),
    "mode=[{mode: async}, {mode: sync, epochs: 1}]": (
        "mode.0.epochs is missing; each stage of a schedule needs it"
    ),
    "mode=[{mode: async, epochs: 1}, {mode: sync, epochs: 1}]": (
        "the stages of mode last 2 epochs together but job.epochs is 1; make them equal"
    ),
    "k_steps=10": "k_steps is not a known key; did you mean mode.steps?",
    "tables.embedding.rule={name: StdAdaGradSGDRule}": (
        "tables.embedding.rule.name must be naive, adagrad, std_adagrad, adam or shared_adam, not "
        "the text 'StdAdaGradSGDRule'; did you mean std_adagrad?"
    ),
    "tables.embedding.embedx_threshold=2": (
        "tables.embedding.embedx_threshold is not a known key; did you mean "
        "tables.embedding.admission.threshold?"
    ),
    "tables.embedding.admission={threshold: 1, show_weight: 0, click_weight: 0}": (
        "no row of table embedding would ever reach admission.threshold with both show_weight and "
        "click_weight 0; raise one of them"
    ),
    "tables.embedding.eviction={every_epochs: 2}": (
        "tables.embedding.eviction.every_epochs is 2 but the job ends after 1 epochs, so nothing "
        "would be deleted; use eviction: null to mean that"
    ),
    "checkpoint.every_epochs=1": (
        "checkpoint.every_epochs is not a known key; did you mean checkpoint.every.epochs?"
    ),
    "checkpoint.every.full=10": (
        "checkpoint.every.full is not a known key; did you mean checkpoint.full_every?"
    ),
    "checkpoint.mirror=/mnt/x": (
        "checkpoint.mirror must be a URL, such as s3://bucket/checkpoints or file:///mnt/b, not "
        "the text '/mnt/x'"
    ),
    "checkpoint.every=2": "checkpoint.every must be a section (keys below it), not 2",
    "checkpoint.every.epochs=2": (
        "checkpoint.every.epochs is 2 but the job ends after 1 epochs, so it would make no "
        "checkpoint; use null to mean that"
    ),
    "checkpoint.every.minutes=0": (
        "checkpoint.every.minutes must be a number greater than 0, not 0"
    ),
    "checkpoint.resume=true": (
        "checkpoint.resume must be auto, never or the path of a checkpoint, not true"
    ),
    "checkpoint={resume: a, warm_start: b}": (
        "a job goes on from checkpoint.resume or begins with the weights of checkpoint.warm_start; "
        "remove one of the two"
    ),
    "evaluate.every_epochs=2": (
        "evaluate.every_epochs is 2 but the job ends after 1 epochs, so it would never "
        "evaluate; use 0 to mean never"
    ),
    "cluster.deadlines.first_step=1": (
        "cluster.deadlines.first_step (1 s) must not be shorter than cluster.deadlines.step (60 s)"
    ),
    "job.name.x=1": (
        "job.name is a single value, not a section; replace it as a whole: --set job.name=..."
    ),
    "model.params={1: [": "not YAML: while parsing a flow node, expected the node content, "
    "but found '<stream end>'",
    "seed": "write it as section.key=value",
    ".seed=1": "write it as section.key=value",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_mistake_in_an_override(write, override: str) -> None:
    assert sentences(write, LEAST, override) == [f"--set {override}: {MISTAKES[override]}"]


def test_shards_that_no_two_servers_can_share_alike(write) -> None:
    text = f"{LEAST}cluster:\n  servers: 3\ntables:\n  embedding:\n    shards: 2\n"
    (sentence,) = sentences(write, text)
    assert sentence == (
        "job.yaml:7: table embedding has 2 shards for 3 servers, so some would hold more rows than "
        "others, or none; use a multiple of 3, or auto"
    )


def test_each_mistake_in_a_file_has_its_line_and_its_sentence(write) -> None:
    text = """\
job:
  name: x
  epoch: 2
data:
  batch_size: many
cluster:
  servers: -1
evaluate:
"""
    assert sentences(write, text, "cluster.workers=0") == [
        "job.yaml:3: job.epoch is not a known key; did you mean job.epochs?",
        "job.yaml:4: data.path is missing; it has no default",
        "job.yaml:5: data.batch_size must be a whole number, not the text 'many'",
        "job.yaml:7: cluster.servers must be at least 1, not -1",
        "job.yaml:8: evaluate must be a section (keys below it), not empty",
        "--set cluster.workers=0: cluster.workers must be at least 1, not 0",
    ]


def test_a_section_that_is_missing_says_what_it_must_give(write) -> None:
    assert sentences(write, "data: {path: d}\n") == [
        "job.yaml: job is missing; it must give job.name"
    ]


# file content -> the sentence
BROKEN = {
    "": "job.yaml is empty; conf/ and conf/data/ have examples",
    "# nothing\n": "job.yaml is empty; conf/ and conf/data/ have examples",
    "- a\n": "job.yaml:1: it must be made of keys and values (key: value)",
    "just text\n": "job.yaml:1: it must be made of keys and values (key: value)",
    "job:\n  name: x\n  name: y\n": (
        "job.yaml:3: job.name is there twice, first in line 2; remove one"
    ),
    "job: {name: x}\njob: {name: y}\n": (
        "job.yaml:2: job is there twice, first in line 1; remove one"
    ),
    "job:\n\tname: x\n": "job.yaml:2: indented with a tab; YAML wants spaces",
    "job: name: x\n": "job.yaml:1: not YAML: mapping values are not allowed here",
    "a: 1\n---\nb: 2\n": (
        "job.yaml:2: not YAML: expected a single document in the stream, but found another document"
    ),
    "job: &j [*j]\n": "job.yaml:1: an alias refers to what it stands in",
    "? [a]\n: b\n": "job.yaml:1: a key must be a single word",
    "a: !!python/name:os.system x\n": (
        "job.yaml:1: 'x' with the tag tag:yaml.org,2002:python/name:os.system can't be read; "
        "write plain text or a number"
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_file_that_is_no_job_file(write, text: str) -> None:
    assert sentences(write, text) == [BROKEN[text]]


def test_file_that_can_not_be_read(write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml does not exist"):
        load_job("none.yaml")
    with pytest.raises(UserError, match="is a directory"):
        load_job(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load_job("binary.yaml")


# --set argument -> the sentence behind it
HOST_MISTAKES = {
    "hosts=3": "hosts must be a list, not 3",
    "hosts=[{port: 22}]": "hosts.0.address is missing; it has no default",
    "hosts=[{address: me@a}]": (
        "hosts.0.address must be a host name or address, without user or port, not the text 'me@a'"
    ),
    "hosts=[{address: a, prot: 1}]": (
        "hosts.0.prot is not a known key; did you mean hosts.0.port?"
    ),
    "hosts=[{address: a}, {address: a}]": (
        "hosts.1 is the same directory of the same host as hosts.0; add its servers and workers "
        "there"
    ),
    "hosts=[{address: a, coordinator: true}, {address: b, coordinator: true}]": (
        "hosts.0 and hosts.1 both have coordinator: true; a job has one"
    ),
}


@pytest.mark.parametrize("argument", HOST_MISTAKES)
def test_mistakes_in_hosts(write, argument: str) -> None:
    assert sentences(write, LEAST, argument) == [f"--set {argument}: {HOST_MISTAKES[argument]}"]


def test_hosts_may_differ_between_processes(write) -> None:
    file = write(LEAST)
    job = load_job(file, ["hosts=[{address: a, key: k, workers: 1}, {address: b, servers: 2}]"])
    assert [host.port for host in job.hosts] == [22, 22]
    assert job.hosts[0].key == Path.cwd() / "k"
    assert job.digest() == load_job(file).digest()
