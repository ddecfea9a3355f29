"""Test AUC of every mode against local training, on the same rows and over several seeds.

    python benchmarks/modes.py [--rows 1000000] [--seeds 3] [--only sync] [--write]

In sync the batches of all workers make one step, so there each worker's batch is 512 / workers:
every mode makes steps of 512 rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import auc

CONFIG = "conf/quickstart.yaml"
BATCH = 512
# name: (servers, workers, mode)
MODES = {
    "async, 1 worker": (1, 1, "async"),
    "async, 2 workers": (2, 2, "async"),
    "async, 4 workers": (2, 4, "async"),
    "sync, 2 workers": (2, 2, "sync"),
    "sync, 4 workers": (2, 4, "sync"),
    "geo, 2 workers": (2, 2, "geo"),
    "bounded, 2 workers": (2, 2, "bounded"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="modes whose name contains this, and local")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/modes.md")
    options = parser.parse_args()
    commands = {"local": [sys.executable, str(auc.ROOT / "train.py"), "--config", CONFIG]}
    for name, (servers, workers, mode) in MODES.items():
        if options.only in name:
            batch = BATCH // workers if mode == "sync" else BATCH
            commands[name] = [
                *(*auc.FLEETPS, "launch", "--config", CONFIG),
                *("--servers", str(servers), "--workers", str(workers)),
                *("--set", f"mode={mode}", "--set", f"data.batch_size={batch}"),
            ]
    with tempfile.TemporaryDirectory() as place:
        settings = {
            "data.path": f"{place}/data",
            "data.synthetic.rows": options.rows,
            "job.epochs": 1,
        }
        found = auc.compare(commands, options.seeds, place, settings)
    command = f"python benchmarks/modes.py --rows {options.rows} --seeds {options.seeds}"
    note = f"""\
{options.rows:,} training and 100,000 test rows of `{CONFIG}`, one epoch, steps of
{BATCH} rows; a seed changes the weights and the order of the rows, not the data."""
    auc.finish(
        auc.table("Every mode against local", command, found, note), "modes.md", write=options.write
    )


if __name__ == "__main__":
    main()
