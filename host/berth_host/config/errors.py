"""The errors of a bad configuration: findings with file, line, field path and the nearest valid name.

    ConfigurationError          the file cannot be used; `kind` says how far loading came
      kind "decode"             not YAML or JSON, unknown version, unknown or repeated field, wrong type
      kind "validation"         decoded, then rejected; every finding has a field path and a type
      kind "featureGates"     a feature gate is unknown, locked, or needs another one
      kind "profile"            valid, but the extenders or a profile cannot be built from it

Raised by the loader, printed by the command line. The kinds and the error types are kube-scheduler's, the
texts of rejected fields are those of `k8s.io/apimachinery/pkg/util/validation/field`, v1.36.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from berth_host.config.source.node import Json
from berth_host.log.secrets import hider_of

ErrorKind = Literal["decode", "validation", "featureGates", "profile"]


class FieldErrorType(StrEnum):
    """Why a field was rejected, spelled as in `k8s.io/apimachinery/pkg/util/validation/field`."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    NOT_SUPPORTED = "FieldValueNotSupported"


@dataclass(frozen=True, slots=True)
class Finding:
    """One error. `field` is a path such as `profiles[0].plugins.score`, empty for the file.

    `type` is set for validation errors. `line` counts from 1, None where unknown. `suggestion` is the
    nearest valid name.
    """

    message: str
    field: str = ""
    type: FieldErrorType | None = None
    line: int | None = None
    suggestion: str | None = None

    @property
    def text(self) -> str:
        """Field path, message and the nearest name, without file and line."""
        path = f"{self.field}: " if self.field else ""
        cure = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{path}{self.message}{cure}"

    def at_line(self, line: int | None) -> Finding:
        """Return the same finding, with its line."""
        return replace(self, line=line)

    def located(self, source: str) -> str:
        """`FILE:LINE: field: message (did you mean "x"?)`."""
        place = source if self.line is None else f"{source}:{self.line}"
        return f"{place}: {self.text}"


class ConfigurationError(Exception):
    """A configuration that cannot be used. Attributes: kind, findings, source, config, warnings.

    `config` holds the defaulted top-level fields, for kind "profile" only. `warnings` say how an older
    file was converted before the error was found. `str()` is one line per finding, each naming file and
    line.
    """

    def __init__(
        self,
        kind: ErrorKind,
        findings: Sequence[Finding],
        *,
        source: str,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        self.kind: ErrorKind = kind
        self.findings = tuple(findings)
        self.source = source
        self.config = config
        self.warnings: tuple[str, ...] = ()
        super().__init__("\n".join(finding.located(source) for finding in self.findings))

    @property
    def text(self) -> str:
        """All findings, one per line."""
        return str(self)

    @property
    def line(self) -> int | None:
        """The line of the first finding that has one."""
        return next((f.line for f in self.findings if f.line is not None), None)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The rejected fields: for kind "validation" all findings, else none."""
        if self.kind == "featureGates":
            return ()
        return tuple(finding for finding in self.findings if finding.type is not None)


def together(first: ConfigurationError, *others: ConfigurationError) -> ConfigurationError:
    """One error with the findings of several, in their order; all else is the first's."""
    findings = [finding for error in (first, *others) for finding in error.findings]
    joint = ConfigurationError(first.kind, findings, source=first.source, config=first.config)
    joint.warnings = first.warnings
    return joint


@contextmanager
def errors_without_secrets(text: str) -> Iterator[None]:
    """Take the secrets of a configuration's text out of the errors about it."""
    try:
        yield
    except ConfigurationError as err:
        shown = hider_of(text)
        findings = [replace(finding, message=shown(finding.message)) for finding in err.findings]
        clean = ConfigurationError(err.kind, findings, source=err.source, config=err.config)
        clean.warnings = tuple(map(shown, err.warnings))
        raise clean from None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` most likely stands for, None if none is close."""
    candidates = sorted(set(known) - {name})
    by_lower = {candidate.lower(): candidate for candidate in reversed(candidates)}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


# --- rejected fields, in the words of apimachinery's `field` package -----------------------------------


def invalid(path: str, value: object, detail: str) -> Finding:
    """Return the finding about a value that breaks a rule."""
    return Finding(f"Invalid value: {_shown(value)}: {detail}", field=path, type=FieldErrorType.INVALID)


def required(path: str, detail: str = "") -> Finding:
    """Return the finding about a value that is missing."""
    message = f"Required value: {detail}" if detail else "Required value"
    return Finding(message, field=path, type=FieldErrorType.REQUIRED)


def duplicate(path: str, value: object) -> Finding:
    """Return the finding about a value that occurred before."""
    return Finding(f"Duplicate value: {_shown(value)}", field=path, type=FieldErrorType.DUPLICATE)


def forbidden(path: str, detail: str) -> Finding:
    """Return the finding about a field that must not be set here."""
    return Finding(f"Forbidden: {detail}", field=path, type=FieldErrorType.FORBIDDEN)


def not_supported(path: str, value: str, supported: Sequence[str]) -> Finding:
    """Return the finding about a word outside a closed set."""
    names = ", ".join(_shown(name) for name in supported)
    return Finding(
        f"Unsupported value: {_shown(value)}: supported values: {names}",
        field=path,
        type=FieldErrorType.NOT_SUPPORTED,
        suggestion=nearest(value, supported),
    )


def without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order, equal ones once (field.ErrorList.ToAggregate)."""
    return list(dict.fromkeys(findings))


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
