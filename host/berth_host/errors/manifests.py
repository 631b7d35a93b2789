"""Errors in manifests. Raised by `berth_sim.manifests`, shown by the CLI (exit code 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_host.errors import HostError


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestProblem:
    """One problem with its place. `document` and `line` count from 1 in the file; 0: unknown."""

    file: str
    document: int = 0
    line: int = 0
    path: str = ""
    problem: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        if self.document:
            place += f" (document {self.document})"
        return f"{place}: {self.path}: {self.problem}" if self.path else f"{place}: {self.problem}"


class ManifestError(HostError):
    """Manifests that cannot be loaded. Attribute: problems, all of them, in the order of the files."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
