"""`fleetps checkpoint`: which there are, what is in them, and what can be made of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fleet_config.errors import TryAgain, UserError
from fleetps.checkpoint.chain import verify_chain
from fleetps.checkpoint.diff import compare_dense, compare_table
from fleetps.checkpoint.export import export as export_to
from fleetps.checkpoint.format import Manifest, TableRecord
from fleetps.checkpoint.place import NEWEST, Place, in_place
from fleetps.checkpoint.reshard import reshard as reshard_to
from fleetps.checkpoint.retention import Named
from fleetps.checkpoint.store import Checkpoint, open_checkpoint
from fleetps.coordinator.client import CoordinatorClient
from fleetps.statusline import client_of

_PATH = click.Path(path_type=Path)
_POLL_SECONDS = 0.3
_checkpoint = click.argument("checkpoint", default=NEWEST)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def checkpoint() -> None:
    """Look into checkpoints, check, convert and remove them.

    CHECKPOINT is a directory, or with --run or --config a name or number of that job's; without
    one, the newest is meant.
    """


@checkpoint.command()
@click.option("--mirror", is_flag=True, help="Those in checkpoint.mirror.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@in_place
def ls(place: Place, mirror: bool, as_json: bool) -> None:
    """List the checkpoints of a job, newest first."""
    copies = place.mirror() if mirror else None
    where = place.all.path if copies is None else copies.url
    found: Sequence[Named] = place.all.list() if copies is None else copies.list()
    lines = [_summary(one, f"{where}/{one.name}") for one in found]
    if as_json:
        click.echo(json.dumps(lines, indent=1))
        return
    if not lines:
        click.echo(f"no checkpoints in {where}")
        return
    click.echo(
        f"{'CHECKPOINT':24} {'KIND':14} {'EPOCH':>5} {'ROWS TRAINED':>14} {'TABLE ROWS':>12} "
        f"{'MB':>9}"
    )
    for line in lines:
        kind = "full" if line["base"] is None else f"delta on {int(line['base'].split('-')[0])}"
        click.echo(
            f"{line['name']:24} {kind:14} {_epoch(line['epoch']):>5} "
            f"{_number(line['rows_trained']):>14} {line['table_rows']:>12,} "
            f"{line['bytes'] / 1e6:>9,.1f}"
        )


def _summary(one: Named, path: str) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "name": one.name,
        "number": manifest.number,
        "kind": manifest.kind,
        "base": manifest.base,
        "path": path,
        "time": manifest.time,
        "epoch": manifest.progress.get("epoch"),
        "rows_trained": manifest.progress.get("rows"),
        "table_rows": sum(table.rows for table in manifest.tables.values()),
        "bytes": _bytes(manifest),
    }


def _bytes(manifest: Manifest) -> int:
    return sum(file.bytes for file in manifest.files.values())


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _epoch(value: object) -> str:
    """They are counted from 0, but people don't."""
    return _number(value + 1 if isinstance(value, int) else value)


@checkpoint.command()
@_checkpoint
@click.option("--json", "as_json", is_flag=True, help="The whole manifest, as JSON.")
@in_place
def show(place: Place, checkpoint: str, as_json: bool) -> None:
    """Show what is in a checkpoint."""
    one = place.find(checkpoint)
    manifest = one.manifest
    if as_json:
        click.echo(manifest.to_json(), nl=False)
        return
    progress = manifest.progress
    click.echo(f"checkpoint    {one.path}")
    if manifest.base is not None:
        click.echo(f"kind          {_chain(one)}")
    click.echo(f"made          {manifest.time} by job {manifest.job.name}, {_world(manifest)}")
    click.echo(
        f"trained       {_number(progress.get('rows'))} rows, in epoch "
        f"{_epoch(progress.get('epoch'))}, of {manifest.data.path}"
    )
    for name, table in manifest.tables.items():
        click.echo(f"table         {name}: {_table(table)}")
    values = sum(math.prod(shape) for shape in manifest.dense.values())
    click.echo(f"dense         {len(manifest.dense)} parameters, {values:,} values")
    click.echo(f"files         {len(manifest.files):,}, {_bytes(manifest) / 1e6:,.1f} MB")
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    click.echo(f"versions      {versions}")


def _world(manifest: Manifest) -> str:
    return f"{_count(manifest.servers, 'server')}, {_count(manifest.workers, 'worker')}"


def _chain(one: Checkpoint) -> str:
    links = one.links()
    size = sum(_bytes(link.manifest) for link in links)
    names = ", ".join(link.name for link in links[1:])
    return f"delta, builds on {names}; all of them: {size / 1e6:,.1f} MB"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _table(table: TableRecord) -> str:
    text = (
        f"{table.rows:,} rows of dim {table.dim}, rule {table.rule['name']}, in "
        f"{_count(table.shards, 'shard')}, {table.bytes / 1e6:,.1f} MB"
    )
    if table.changes is None:
        return text
    return f"{text}: {table.changes.changed:,} rows changed, {table.changes.removed:,} removed"


@checkpoint.command()
@_checkpoint
@click.option("--all", "everything", is_flag=True, help="All checkpoints of the job.")
@in_place
def verify(place: Place, checkpoint: str, everything: bool) -> None:
    """Read every file: checksums, rows, columns; the first damaged one is named."""
    wrong = []
    for path in place.all.entries() if everything else place.to_verify(checkpoint):
        try:
            one = open_checkpoint(path)
            verify_chain(one)
        except UserError as error:
            wrong.append(str(error))
            continue
        rows = sum(table.rows for table in one.manifest.tables.values())
        links = one.links()
        files = sum(len(link.manifest.files) for link in links)
        others = f" of {len(links)} checkpoints" if one.manifest.base else ""
        click.echo(f"{one.name}: {files:,} files{others} with {rows:,} rows are right")
    if wrong:
        raise UserError("\n".join(wrong))


@checkpoint.command()
@click.argument("a")
@click.argument("b")
@in_place
def diff(place: Place, a: str, b: str) -> None:
    """Show what differs between two checkpoints: rows of tables, dense parameters."""
    first, second = place.find(a), place.find(b)
    click.echo(f"A  {first.path}\nB  {second.path}")
    for name in {**first.manifest.tables, **second.manifest.tables}:
        click.echo(f"table {name}{_table_difference(first, second, name)}")
    changed = dict(compare_dense(first, second))
    for name, difference in changed.items():
        click.echo(f"dense {name}: {difference}")
    if not changed:
        click.echo("dense: the same")


def _table_difference(a: Checkpoint, b: Checkpoint, name: str) -> str:
    in_a, in_b = a.manifest.tables.get(name), b.manifest.tables.get(name)
    if in_a is None or in_b is None:
        return f": only in {'A' if in_a else 'B'}"
    for what, left, right in (
        ("dim", in_a.dim, in_b.dim),
        ("rule", in_a.held_as, in_b.held_as),
    ):
        if left != right:
            return f": can't be compared: {what} {left} in A, {right} in B"
    found = compare_table(a, b, name)
    largest = f", largest difference {found.largest:.6g} (id {found.of})" if found.changed else ""
    return (
        f"\n  the same               {found.same:>12,} rows"
        f"\n  other values           {found.changed:>12,}{largest}"
        f"\n  other counts or state  {found.other:>12,}"
        f"\n  only in A              {found.only_a:>12,}"
        f"\n  only in B              {found.only_b:>12,}"
    )


@checkpoint.command()
@click.argument("checkpoint")
@click.argument("out", type=_PATH)
@click.option("--servers", type=click.IntRange(1), required=True, help="Servers that will load it.")
@click.option("--shards", type=click.IntRange(1), required=True, help="Shards of each table.")
@in_place
def reshard(place: Place, checkpoint: str, out: Path, servers: int, shards: int) -> None:
    """Write a copy with other numbers of shards and servers into the new directory OUT.

    A job does this by itself when it goes on from a checkpoint.
    """
    one = place.find(checkpoint)
    reshard_to(one, out.absolute(), dict.fromkeys(one.manifest.tables, shards), servers)
    click.echo(f"{out}: {_count(shards, 'shard')} in each table, for {_count(servers, 'server')}")


@checkpoint.command()
@click.argument("checkpoint")
@click.argument("out", type=_PATH)
@in_place
def export(place: Place, checkpoint: str, out: Path) -> None:
    """Write the model into the new directory OUT: tables as Parquet, dense.npz, no state."""
    for file in export_to(place.find(checkpoint), out.absolute()):
        click.echo(f"{out / file.name}: {file.stat().st_size / 1e6:,.1f} MB")


@checkpoint.command()
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT...")
@in_place
def rm(place: Place, checkpoints: tuple[str, ...]) -> None:
    """Remove checkpoints, by name or number."""
    if NEWEST in checkpoints:
        raise UserError(
            f"rm doesn't take {NEWEST}, as a running job may have made another one since you "
            f"looked; name it: {place.find(NEWEST).name} is the newest now"
        )
    names = {one.manifest.number: one.name for one in place.all.list()}
    for text in checkpoints:
        name = names.get(int(text), text) if text.isdecimal() else text
        place.all.remove(name)
        click.echo(f"removed {name}")


@checkpoint.command()
@click.option("--run", metavar="DIR", help="The run directory of the job.")
@click.option("--coordinator", metavar="HOST:PORT", help="Or its coordinator's address.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait for it.")
def now(run: str | None, coordinator: str | None, timeout: float) -> None:
    """Ask a running job for a checkpoint and wait until it is there."""
    if run and coordinator:
        raise click.UsageError("--run and --coordinator name the job twice: give one of them")
    with client_of(coordinator, run) as client:
        click.echo(_taken(client, timeout))


def _taken(client: CoordinatorClient, timeout: float) -> str:
    before = client.status().checkpoint
    client.checkpoint("asked for on the command line")
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        state = client.status().checkpoint
        if state.number > before.number:
            return f"{state.name}: nobody trained for {state.pause:.1f} s"
        if state.failures > before.failures:
            raise TryAgain(f"the checkpoint failed: {state.reason}; the job goes on")
        time.sleep(_POLL_SECONDS)
    raise TryAgain(f"there is no checkpoint after {timeout:g} s, but the job still works on it")
