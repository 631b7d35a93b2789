"""Write the test vectors of the contract: proto/vectors/NAME.json for each module proto/vectors/NAME.py.

python proto/write_vectors.py [NAME...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from vectors import (
    digests,
    frames,
    node_sets,
    scenarios,
    scores,
    sort_keys,
    state,
    usage,
    writing,
    zero_values,
)

DOCUMENTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "digests": digests.document,
    "frames": frames.document,
    "node_sets": node_sets.document,
    "scenarios": scenarios.document,
    "scores": scores.document,
    "sort_keys": sort_keys.document,
    "state": state.document,
    "usage": usage.document,
    "zero_values": zero_values.document,
}


def main() -> None:
    """Write the files that the command line names, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(DOCUMENTS)}; default: all")
    names = parser.parse_args().names or list(DOCUMENTS)
    if unknown := [name for name in names if name not in DOCUMENTS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(DOCUMENTS)}")
    for name in names:
        path = writing.FOLDER / f"{name}.json"
        path.write_text(writing.text(DOCUMENTS[name]()))
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
