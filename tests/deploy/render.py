"""Make the plain manifests of deploy/manifests from the chart, one for each file of deploy/values.

    python tests/deploy/render.py            write them
    python tests/deploy/render.py --check    list those that differ from the chart, and exit with 1

Needs helm (`make envtest`). The manifests are for `kubectl apply`, in kube-system, which every cluster has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.chart import MANIFESTS, rendered_text, values_files
from support.places import ROOT

_OF_HELM: Final = ("helm.sh/chart:", "app.kubernetes.io/managed-by:")


def made(values: Path) -> str:
    """Return the plain manifests for one values file, without the labels of helm."""
    lines = [
        line
        for line in rendered_text(values).splitlines()
        if not line.strip().startswith(_OF_HELM) and not line.startswith("# Source: ")
    ]
    origin = values.relative_to(ROOT)
    header = f"# Made from deploy/helm/berth with {origin}, by tests/deploy/render.py: change those.\n"
    return header + "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the manifests, or with --check list those that differ."""
    parser = argparse.ArgumentParser(description="Make the plain manifests from the chart.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    options = parser.parse_args(argv)
    wanted = {MANIFESTS / values.name: made(values) for values in values_files()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in MANIFESTS.glob("*.yaml") if path not in wanted]
    for path in sorted(stale):
        print(path.relative_to(ROOT))
        if not options.check:
            if path in wanted:
                path.write_text(wanted[path])
            else:
                path.unlink()
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
