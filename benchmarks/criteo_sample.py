"""Test AUC on a small Criteo file, locally and with servers, over several seeds.

    python benchmarks/criteo_sample.py TRAIN.tsv [--seeds 5] [--write]

The file's first 80 % train, its last 20 % test; settings are those of conf/criteo_sample.yaml.
"""

from __future__ import annotations

import argparse
import tempfile

import auc

CONFIG = "conf/criteo_sample.yaml"
CONVERT = ["--split", "time", "--test-fraction", "0.2", "--min-count", "10", "--bucketize"]
NOTE = """\
Settings: conf/criteo_sample.yaml, chosen on the last 1,000 of the training rows.
One-hot logistic regression on the same split of the first 10,000 Kaggle rows: 0.7435."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = f"{place}/data"
        auc.run([*auc.FLEETPS, "data", "convert", "criteo", options.input, data, *CONVERT])
        commands = auc.ways(CONFIG, (1, 1), (2, 2))
        found = auc.compare(commands, options.seeds, place, {"data.path": data})
    command = f"python benchmarks/criteo_sample.py train_10k.tsv --seeds {options.seeds}"
    report = auc.table("A small Criteo sample", command, found, NOTE)
    auc.finish(report, "criteo_sample.md", write=options.write)


if __name__ == "__main__":
    main()
