"""Test AUC of the quickstart job with servers against local training, over several seeds.

python benchmarks/parity.py [--seeds 3] [--write]
"""

from __future__ import annotations

import argparse
import tempfile

import auc

CONFIG = "conf/quickstart.yaml"
NOTE = """\
400,000 training and 100,000 test rows, 2 epochs; a seed changes the weights and the order of the
rows, not the data. Best possible AUC on these test rows: 0.8248."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        commands = auc.ways(CONFIG, (1, 1), (2, 2))
        found = auc.compare(commands, options.seeds, place, {"data.path": f"{place}/data"})
    command = f"python benchmarks/parity.py --seeds {options.seeds}"
    report = auc.table("Async against local", command, found, NOTE)
    auc.finish(report, "parity.md", write=options.write)


if __name__ == "__main__":
    main()
