"""A workload's `params`, which the ops of its case name as `$name`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_host.config.errors import nearest
from berth_sim.manifests.documents import DocumentError, documents_of

from berth_bench.scheduler_perf.fields import Fields


class Params:
    """The values of one workload; records which were used."""

    def __init__(self, workload: str, values: Mapping[str, Any]) -> None:
        self._workload = workload
        self._values = dict(values)
        self._used: set[str] = set()

    def compute(self, name: str, value: int) -> None:
        """Set a parameter that an op computes for the ops after it."""
        self._values[name] = value
        self._used.add(name)

    @property
    def unused(self) -> list[str]:
        """The parameters that no op has named."""
        return sorted(self._values.keys() - self._used)

    def count(self, fields: Fields, *, name: str = "count", default: int | None = None) -> int:
        """Return `count`, or the value of `countParam`. At least 0; `default` None: one of them is
        required.
        """
        text = fields.text(f"{name}Param")
        own = fields.integer(name)
        if not text:
            if own:
                return own
            if name not in fields.raw and default is None:
                fields.refuse(name, f"is required, or {name}Param")
            return 0 if name in fields.raw else default or 0
        value = self._named(fields, f"{name}Param", text)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            fields.refuse(f"{name}Param", f"{text} must be a whole number, and is {value!r:.60}")
            return 0
        return value

    def of_the_workload(self, name: str) -> Any:
        """Return a parameter that the workload as a whole uses, and no op names; None if it is absent."""
        self._used.add(name)
        return self._values.get(name)

    def text(self, fields: Fields, name: str) -> str:
        """Return the text `name`, or the one that `<name>Param` names."""
        own, param = fields.text(name), fields.text(f"{name}Param")
        if not param:
            return own
        return str(self._named(fields, f"{name}Param", param) or "")

    def value(self, fields: Fields, name: str, default: str) -> str:
        """Return the text `name`, in which `$name|default` stands for a parameter; `default` if the field is
        absent.
        """
        text = fields.text(name) or default
        own, bar, other = text.partition("|")
        if not text.startswith("$"):
            return text
        return other if bar and own[1:] not in self._values else str(self._named(fields, name, own) or "")

    def flag(self, fields: Fields, name: str) -> bool:
        """Return the flag `name`, or the one that `<name>Param` names."""
        own, param = fields.flag(name), fields.text(f"{name}Param")
        return bool(self._named(fields, f"{name}Param", param)) if param else own

    def template_params(self, fields: Fields) -> dict[str, Any]:
        """Return `templateParams`, with `$name` and `$name|default` replaced. A default is YAML."""
        given = fields.any("templateParams") or {}
        if not isinstance(given, dict):
            fields.refuse("templateParams", "must be a map")
            return {}
        return {key: self._template_param(fields, key, value) for key, value in given.items()}

    def _template_param(self, fields: Fields, key: str, value: Any) -> Any:
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        name, bar, default = value.partition("|")
        if not bar or name[1:] in self._values:
            return self._named(fields, "templateParams", name)
        try:
            (document,) = [parsed for parsed, _ in documents_of(default)] or [None]
        except (DocumentError, ValueError):
            fields.refuse("templateParams", f"the default of {key}, {default!r:.60}, is not one YAML value")
            return None
        return document

    def _named(self, fields: Fields, field: str, text: str) -> Any:
        if not text.startswith("$"):
            fields.refuse(field, f"{text!r} must begin with $, as $initNodes")
            return None
        name = text[1:]
        if name not in self._values:
            meant = nearest(name, self._values)
            cure = f": did you mean ${meant}?" if meant else ""
            fields.refuse(field, f"workload {self._workload} has no parameter {text}{cure}")
            return None
        self._used.add(name)
        return self._values[name]
