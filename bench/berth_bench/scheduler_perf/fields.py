"""One map of a scheduler_perf file: its fields, each of its type. A field that no method reads is unknown.

Every problem is collected with its line; `raise_any` raises them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from berth_host.config.errors import nearest
from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_sdk.duration import parse_duration
from berth_sim.manifests.documents import line_of

_WORDS: Final = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a map"}
_NS: Final = 1_000_000_000


class Problems:
    """The problems of one file. Equal problems are kept once."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._text = text
        self._found: dict[tuple[str, str], ManifestProblem] = {}

    def add(self, path: str, problem: str) -> None:
        """Add a problem at `path` (`[3].workloadTemplate[0].count`)."""
        line = line_of(self._text, 1, path)
        self._found.setdefault(
            (path, problem), ManifestProblem(file=str(self.path), line=line, problem=problem)
        )

    def add_in(self, file: str, line: int, problem: str) -> None:
        """Add a problem in another file that this file names."""
        self._found.setdefault((file, problem), ManifestProblem(file=file, line=line, problem=problem))

    @property
    def found(self) -> list[ManifestProblem]:
        """All problems, in the order in which they were found."""
        return list(self._found.values())


def raise_any(problems: Iterable[Problems]) -> None:
    """Raise ManifestError with all problems of these files, if there are any."""
    found = [problem for one in problems for problem in one.found]
    if found:
        raise ManifestError(found)


class Fields:
    """One map. `where`: its name in messages (`case SchedulingBasic, op 2 (createPods)`)."""

    def __init__(self, problems: Problems, path: str, where: str, value: Any) -> None:
        self.problems = problems
        self.path = path
        self.where = where
        self._asked: set[str] = set()
        self.raw: Mapping[str, Any] = {}
        if isinstance(value, dict):
            self.raw = value
        else:
            problems.add(path, self._at("", "must be a map"))

    def refuse(self, name: str, problem: str) -> None:
        """Add a problem with a field, or with "" a problem of the whole map."""
        self.problems.add(f"{self.path}.{name}" if name else self.path, self._at(name, problem))

    def any(self, name: str) -> Any:
        """Return the value unchanged; None if it is absent."""
        self._asked.add(name)
        return self.raw.get(name)

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        """Return a text."""
        value = self._typed(name, str)
        if required and not value:
            self.refuse(name, "is required")
        return default if value is None else value

    def integer(self, name: str, default: int = 0) -> int:
        """Return a whole number, 0 or more."""
        value = self._typed(name, int)
        if value is not None and value < 0:
            self.refuse(name, f"must not be negative, and is {value}")
        return default if value is None else value

    def flag(self, name: str) -> bool:
        """Return a bool; False if it is absent."""
        return bool(self._typed(name, bool))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        values = self._typed(name, list) or []
        if not all(isinstance(value, str) for value in values):
            self.refuse(name, "must be a list of texts")
            return ()
        return tuple(values)

    def labels(self, name: str) -> dict[str, str]:
        """Return a map from text to text."""
        values = self._typed(name, dict) or {}
        if not all(isinstance(value, str) for value in values.values()):
            self.refuse(name, "must be a map of texts")
            return {}
        return dict(values)

    def gates(self, name: str = "featureGates") -> dict[str, bool]:
        """Return a map from text to bool."""
        values = self._typed(name, dict) or {}
        if not all(isinstance(value, bool) for value in values.values()):
            self.refuse(name, "must be a map to true or false")
            return {}
        return dict(values)

    def seconds(self, name: str) -> float:
        """Read a duration in Go's form and return seconds; 0 if it is absent."""
        return self.seconds_of(name, self.text(name))

    def seconds_of(self, name: str, text: str) -> float:
        """Read a duration from a text of another place, for the field `name`."""
        try:
            return parse_duration(text) / _NS if text else 0.0
        except ValueError as err:
            self.refuse(name, str(err))
            return 0.0

    def child(self, name: str, what: str = "") -> Fields | None:
        """Return a map below this one; None if it is absent."""
        value = self.any(name)
        if value is None:
            return None
        where = f"{self.where}, {what or name}"
        return Fields(self.problems, f"{self.path}.{name}", where, value)

    def children(self, name: str) -> list[tuple[str, Any]]:
        """Return (path, value) of each item of a list."""
        values = self._typed(name, list) or []
        return [(f"{self.path}.{name}[{i}]", value) for i, value in enumerate(values)]

    def done(self, also: Iterable[str] = ()) -> None:
        """Report all fields that no method has read as unknown. `also`: names that are accepted too."""
        known = self._asked | set(also)
        for name in self.raw:
            if name not in known:
                meant = nearest(name, known)
                cure = f": did you mean {meant}?" if meant else f": there are {', '.join(sorted(known))}"
                self.refuse(name, f"is not known{cure}")

    def _typed(self, name: str, kind: type) -> Any:
        value = self.any(name)
        if value is None or (isinstance(value, kind) and (kind is not int or not isinstance(value, bool))):
            return value
        self.refuse(name, f"must be {_WORDS[kind]}, and is {value!r:.60}")
        return None

    def _at(self, name: str, problem: str) -> str:
        return f"{self.where}: {name}: {problem}" if name else f"{self.where}: {problem}"
