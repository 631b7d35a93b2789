"""Files that do not describe a cluster. Raised by `cluster/memory`'s loader, shown by the CLI (exit 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_host.errors import HostError


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestProblem:
    """One thing that is wrong, and where. `document` counts from 1 in its file, `line` from 1; 0: unknown."""

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
    """Nothing was loaded. Attribute: problems, everything that is wrong, in the order of the files."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
