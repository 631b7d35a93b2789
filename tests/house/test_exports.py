"""What programs of others import: one file per package, and the pages use nothing else."""

from __future__ import annotations

import re
import subprocess
import sys

import berth_host
import berth_sim
import pytest
from support.places import ROOT

IMPORT = re.compile(
    r"^(?:>>> |\.\.\. )?\s*(?:from (berth_(?:host|sim|kube)[\w.]*) import|import (berth_\w[\w.]*))", re.M
)
PAGES = [
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "README.md",
    ROOT / "examples/custom_scheduler/custom_scheduler.py",
]


@pytest.mark.parametrize("package", [berth_host, berth_sim])
def test_every_export_is_there_and_nothing_else(package: object) -> None:
    names = vars(package)["__all__"]
    assert sorted(names) == names
    for name in names:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # type: ignore[attr-defined]  # noqa: B018  # the access is what is tested


def test_pages_import_exports_only() -> None:
    seen = set()
    for page in PAGES:
        for found in IMPORT.finditer(page.read_text()):
            module = found[1] or found[2]
            seen.add(module)
            assert module in ("berth_host", "berth_sim", "berth_sdk") or module.startswith("berth_sdk."), page
    assert {"berth_host", "berth_sim"} <= seen


def test_a_package_is_imported_without_its_exports() -> None:
    text = (
        "import berth_host, berth_sim, sys; print(*sorted(m for m in sys.modules if m.startswith('berth_')))"
    )
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["berth_host", "berth_sim"]
