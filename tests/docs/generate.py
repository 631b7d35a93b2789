"""Generate the made parts of the reference pages: `python tests/docs/generate.py`.

`tests/docs/test_reference.py` fails when a page differs from its sources; then run this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests")))
# The folder of this file contains modules of `docs`, which must not be found by their bare names.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from docs.pages import all_pages  # noqa: E402
from docs.reference.sections import filled  # noqa: E402


def main() -> int:
    """Write the pages that changed, and print their names."""
    for page in all_pages():
        text = filled(page.text)
        if text != page.text:
            page.path.write_text(text, encoding="utf-8")
            print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
