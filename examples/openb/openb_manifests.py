"""The openb GPU cluster trace -> manifests in files, for `berth simulate` and `check_placements.py`.

    python examples/openb/openb_manifests.py --data DIR --out DIR [--nodes N]

The folder of `--data` holds `openb_node_list_all_node.csv` and `openb_pod_list_default.csv` of the trace
(2023, Alibaba; github.com/alibaba/clusterdata). `berth_bench.openb` converts each line; `berth bench openb`
uses it too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from berth_bench.openb import Manifest, nodes_of, tasks_of
from berth_host.errors.manifests import ManifestError


def _write(path: Path, manifests: Iterable[Manifest]) -> int:
    items = list(manifests)
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    path.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return len(items)


def convert(data: Path, out: Path, nodes_wanted: int | None = None) -> tuple[int, int]:
    """Write `nodes.json` and `pods.json` into `out`. Returns the number of nodes and of pods. Raises
    ManifestError.
    """
    nodes, tasks = nodes_of(data, nodes_wanted), tasks_of(data)
    out.mkdir(parents=True, exist_ok=True)
    return _write(out / "nodes.json", nodes), _write(out / "pods.json", tasks)


def main() -> int:
    """Read the arguments, convert, print a summary."""
    parser = argparse.ArgumentParser(description="openb trace -> manifests")
    parser.add_argument("--data", type=Path, required=True, help="folder with the trace's two CSV files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write nodes.json and pods.json to")
    parser.add_argument("--nodes", type=int, help="so many nodes, as `berth bench openb --nodes` makes them")
    arguments = parser.parse_args()
    if arguments.nodes is not None and arguments.nodes < 1:
        parser.error("--nodes must be at least 1")
    try:
        nodes, pods = convert(arguments.data, arguments.out, arguments.nodes)
    except ManifestError as err:
        print(err, file=sys.stderr)
        return 2
    print(f"{nodes} nodes and {pods} pods in {arguments.out}; next: berth simulate -f {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
