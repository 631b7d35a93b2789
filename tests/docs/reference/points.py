"""Generate docs/reference/extension-points.md from `berth_sdk.extension_points` and the host's table of
calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from berth_host.config.default_plugins import POINT_INTERFACES
from berth_host.rpc.calls import CALLS
from berth_sdk import events, extension_points, pod_fields, results, status
from berth_sdk.duration import format_duration
from berth_sdk.extension_points import METHODS, ExtensionPoint, Plugin
from berth_sdk.needs import Need

from docs.reference.markdown import attribute_docs, classes_of, code, codes, docstring, table

_NAMED: Final = {"SUCCESS": status.SUCCESS, "UNRESOLVABLE": status.UNRESOLVABLE}
_NO_POINT: Final = {"EndCycles"}
_SECOND_NS: Final = 1_000_000_000


def points() -> str:
    """Return a table of every extension point with its methods and its calls of a served plugin."""
    rows = []
    for point in ExtensionPoint:
        rpcs = [call.rpc for call in CALLS if call.point is point and call.rpc not in _NO_POINT]
        in_profile = point.config_name in POINT_INTERFACES
        rows.append(
            (
                code(point.name),
                code(point.config_name) if in_profile else "with `score`",
                codes(METHODS[point]),
                codes(rpcs),
            )
        )
    return table(("Point", "In a profile", "Methods of the class", "Calls of the contract"), rows)


def calls() -> str:
    """Return a table of deadline, policy and repetition of every call."""
    rows = [
        (
            code(call.rpc),
            _seconds(call.default_deadline_s),
            _seconds(call.rules.max_deadline_ms / 1000),
            code(call.rules.policy.value),
            "once" if call.pure else "no",
            "yes" if call.budgeted else "no",
        )
        for call in CALLS
    ]
    header = (
        "Call",
        "Deadline",
        "Highest deadline",
        "Policy",
        "Repeated when unavailable",
        "Counts for `cycleBudget`",
    )
    return table(header, rows)


def protocols() -> str:
    """Return the arguments and results of each method, from its docstring."""
    parts = []
    for cls in classes_of(extension_points):
        if getattr(cls, "_is_protocol", False):
            parts += [f"### {cls.__name__}", docstring(cls), *_methods(cls)]
    return "\n\n".join(parts)


def attributes() -> str:
    """Return a table of the class attributes of a plugin, with their defaults."""
    docs = attribute_docs(Plugin)
    rows = [
        (code(name), code(_shown(getattr(Plugin, name))), docs.get(name, ""))
        for name in inspect.get_annotations(Plugin)
    ]
    return table(("Attribute", "Default", "Meaning"), rows)


def codes_of_status() -> str:
    """Return a table of the codes of a Status."""
    docs = attribute_docs(status.Code)
    rows = [(code(item.name), code(item.kube_name), docs[item.name]) for item in status.Code]
    return table(("Code", "In kube-scheduler's words", "Meaning"), rows)


def enumerations() -> str:
    """Return tables of the values that attributes and answers may have."""
    parts = []
    for cls in (
        extension_points.ScoreNormalization,
        extension_points.NodeMode,
        extension_points.PodSensitivity,
        extension_points.NodeColumn,
        pod_fields.PodField,
        events.Hint,
        results.PatchOutcome,
        results.Decision,
        results.Cancellation,
    ):
        docs = attribute_docs(cls)
        items: list[Enum] = list(cls)
        parts += [f"### {cls.__name__}", docstring(cls)]
        if docs:
            parts.append(table(("Value", "Meaning"), ((code(i.name), docs.get(i.name, "")) for i in items)))
        else:
            parts.append(f"Values: {codes(item.name for item in items)}.")
    return "\n\n".join(parts)


def answers() -> str:
    """Return the result classes with their fields."""
    parts = []
    for cls in classes_of(results):
        if not issubclass(cls, Enum):
            parts += [f"### {cls.__name__}", f"**`{signature_of(cls.__name__, cls)}`**", docstring(cls)]
    return "\n\n".join(parts)


def needs() -> str:
    """Return the ways to declare a need."""
    return "\n\n".join(
        part
        for name, method in vars(Need).items()
        if isinstance(method, staticmethod)
        for part in (
            f"**`{signature_of(f'Need.{name}', method.__func__)}`**",
            docstring(method.__func__),
        )
    )


def event_words() -> str:
    """Return a table of the values of `EventInterest.actions`."""
    rows = [("any", codes(events.COMMON))]
    rows += [(code(resource), codes(words)) for resource, words in events.WORDS.items()]
    return table(("Resource", "Actions"), rows)


def _methods(cls: type) -> Iterator[str]:
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            yield f"**`{signature_of(name, method)}`**"
            yield docstring(method)


def signature_of(name: str, function: Any) -> str:
    """Return `name(parameters) -> answer`, without self and cls."""
    signature = inspect.signature(function)
    parameters: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        if parameter.name not in ("self", "cls"):
            parameters.append(_parameter(parameter))
    answer = signature.return_annotation
    shown = f" -> {answer}" if isinstance(answer, str) and answer != "None" else ""
    return f"{name}({', '.join(parameters)}){shown}"


def _parameter(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
    star = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else star
    text = f"{star}{parameter.name}: {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = next((name for name, value in _NAMED.items() if parameter.default == value), None)
    return f"{text} = {default or _default(parameter.default)}"


def _default(value: object) -> str:
    shown = repr(value)
    return "{}" if shown == "<factory>" else shown


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return "(Need.nodes(),)" if value else "()"
    return repr(value)


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds * _SECOND_NS))
