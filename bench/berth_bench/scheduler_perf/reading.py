"""The argument of every reader of an op: its fields, the workload's parameters, and the templates it names.

Made by `ops.read_steps`, one per op.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from berth_host.model.paths import why_unread
from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.validation import problems_of
from berth_sim.cluster.versions import as_stored

from berth_bench.scheduler_perf.fields import Fields, Problems
from berth_bench.scheduler_perf.params import Params
from berth_bench.templates import Template, TemplateError

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseContext:
    """The context of the ops of one workload. `title`: `case X`; `default_pod`: its template, or "".

    `signatures`: each pod of a template gets a label of its own, unless the op says how many share one.
    """

    problems: Problems
    title: str
    params: Params
    default_pod: str = ""
    signatures: bool = False

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the file refer to."""
        return self.problems.path.parent


@dataclass(frozen=True, slots=True)
class OpReader:
    """One op that is being read. `index`: its number in the case, from 0."""

    context: CaseContext
    fields: Fields
    index: int

    @property
    def params(self) -> Params:
        """The parameters of the workload."""
        return self.context.params

    @property
    def namespace(self) -> str:
        """The namespace that the op names, or one of its own."""
        return self.fields.text("namespace") or f"namespace-{self.index}"

    def template(
        self,
        field: str,
        *,
        typed_as: str = "",
        required: bool = False,
        computed: Mapping[str, Any] = _NOTHING,
    ) -> Template | None:
        """Return the template that a field names; None if the field is absent or wrong. `computed`: names
        that the op adds to `templateParams`.
        """
        path = self.fields.text(field, required=required)
        params = {**self.params.template_params(self.fields), **computed}
        return self.template_at(field, path, typed_as=typed_as, params=params) if path else None

    def template_at(
        self, field: str, path: str, *, typed_as: str = "", params: Mapping[str, Any] | None = None
    ) -> Template | None:
        """Return the template at `path`. Its first object is made now, so that errors are reported early."""
        where = self.context.folder / path
        try:
            text = where.read_text(encoding="utf-8")
        except UnicodeDecodeError as err:
            self.fields.refuse(field, f"{path} is not UTF-8 text (byte {err.start})")
            return None
        except (OSError, ValueError) as err:
            self.fields.refuse(field, f"{path} cannot be read: {why_unread(err)}")
            return None
        template = Template(path=str(where), text=text, params=params or {}, typed_as=typed_as)
        self._check(template, typed_as)
        return template

    def _check(self, template: Template, wanted_kind: str) -> None:
        def refuse(problem: str, line: int = 0) -> None:
            self.context.problems.add_in(template.path, line, f"{problem} (used by {self.fields.where})")

        try:
            obj = template.object_at(0, 1)
        except TemplateError as err:
            refuse(err.problem, err.line)
            return
        kind = BY_KIND.get(str(obj["kind"]))
        if wanted_kind and obj["kind"] != wanted_kind:
            refuse(f"must be a {wanted_kind}, and is a {obj['kind']}")
        elif kind is None or not kind.has_version(obj["apiVersion"]):
            refuse(f"the embedded cluster keeps no {obj['kind']} of {obj['apiVersion']}")
        else:
            metadata = obj.get("metadata")
            named = obj if isinstance(metadata, dict) and (metadata.keys() & _NAMES) else _named(obj)
            for problem in problems_of(kind, as_stored(kind, named)):
                refuse(f"{problem.path}: {problem.problem}")


_NAMES: Final = {"name", "generateName"}


def _named(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object with a name: a template may leave the name to the op."""
    metadata = obj.get("metadata") or {}
    return obj | {"metadata": {**metadata, "generateName": "x-"}} if isinstance(metadata, dict) else obj
