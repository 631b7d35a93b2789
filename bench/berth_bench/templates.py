"""Read a file with one object, and make that object for each index, as scheduler_perf does with Go templates.

Files are read when the workload is read, so a missing or wrong template is reported before anything runs.
Actions see `.Index`, `.Count` and the names of `templateParams`; those of an object with a parent see
`.ParentIndex`, too. `go_templates` says what they may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.validation.schema import spelled
from berth_sim.manifests.documents import DocumentError, documents_of

from berth_bench.go_templates import GoTemplateError, rendered


class TemplateError(Exception):
    """A template cannot be used. `line`: from 1; 0: unknown."""

    def __init__(self, problem: str, line: int = 0) -> None:
        self.problem = problem
        self.line = line
        super().__init__(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template file. `path`: its name in messages; `params`: further names for its actions.

    `typed_as`: the kind that Go decodes the object into: field names may be written in any case, and a typed
    client sends the object in the kind's own version. `per_parent`: the number of objects with one parent; 0:
    they have none.
    """

    path: str
    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    typed_as: str = ""
    per_parent: int = 0

    @property
    def is_static(self) -> bool:
        """True if every index gives the same object."""
        return "{{" not in self.text

    def object_at(self, index: int, count: int) -> dict[str, Any]:
        """Return the object for one index. Raises TemplateError."""
        text = self.text
        if not self.is_static:
            values = {**self.params, "Index": index, "Count": count}
            if self.per_parent:
                values["ParentIndex"] = index // self.per_parent
            try:
                text = rendered(text, values)
            except GoTemplateError as err:
                raise TemplateError(err.problem, err.line) from err
        try:
            documents = [document for document, _ in documents_of(text) if document is not None]
        except DocumentError as err:
            raise TemplateError(err.problem, err.line) from err
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise TemplateError("must contain one Kubernetes object")
        if not documents[0].get("kind") or not documents[0].get("apiVersion"):
            raise TemplateError("must have apiVersion and kind")
        return self._typed(documents[0]) if self.typed_as else documents[0]

    def _typed(self, document: dict[str, Any]) -> dict[str, Any]:
        made = spelled(self.typed_as, document)
        kind = BY_KIND.get(self.typed_as)
        if kind is None or made["kind"] != self.typed_as:
            return made  # the reader refuses both
        return made | {"apiVersion": kind.api_version}

    def objects(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield `count` objects. A static template yields the same object each time, which the caller must
        not change.
        """
        if self.is_static:
            made = self.object_at(0, count)
            yield from (made for _ in range(count))
        else:
            yield from (self.object_at(index, count) for index in range(count))
