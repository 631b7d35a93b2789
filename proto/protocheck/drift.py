"""Freshly generated code against the committed code. Called by `generate.py --check`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path


def check(fresh: Mapping[str, str], committed_root: Path) -> list[str]:
    """One finding for each file that differs, is missing, or has no source any more.

    `fresh` maps paths below `committed_root` to texts, as `compiler.generate` returns them.
    """
    findings = []
    for name, text in sorted(fresh.items()):
        committed = committed_root / name
        if not committed.exists():
            findings.append(f"{committed}: DRIFT: is missing; run proto/generate.py and commit it")
        elif committed.read_bytes() != text.encode():
            line = _first_difference(text, committed.read_text("utf-8"))
            findings.append(
                f"{committed}:{line}: DRIFT: differs from what the sources give; "
                "run proto/generate.py and commit it"
            )
    findings += [
        f"{path}: DRIFT: has no source any more; run proto/generate.py and commit its removal"
        for path in stale_files(fresh, committed_root)
    ]
    return findings


def stale_files(fresh: Mapping[str, str], committed_root: Path) -> list[Path]:
    """Return the committed generated files that the sources no longer give."""
    folders = {(committed_root / name).parent for name in fresh}
    generated = {path for folder in folders for path in folder.glob("*_pb2*.py*") if path.is_file()}
    return sorted(generated - {committed_root / name for name in fresh})


def _first_difference(one: str, other: str) -> int:
    """Return the first line, counted from 1, at which two texts differ; 1 if only line ends do."""
    pairs = zip_longest(one.splitlines(), other.splitlines())
    return next((number for number, (a, b) in enumerate(pairs, 1) if a != b), 1)
