"""Rejected fields, with the types and texts of `k8s.io/apimachinery/pkg/util/validation/field`, v1.36."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from berth_host.config.errors import FieldErrorType, Finding, nearest


def invalid(path: str, value: object, detail: str) -> Finding:
    """A value that breaks a rule."""
    return Finding(f"Invalid value: {_shown(value)}: {detail}", field=path, type=FieldErrorType.INVALID)


def required(path: str, detail: str = "") -> Finding:
    """A value that is missing."""
    message = f"Required value: {detail}" if detail else "Required value"
    return Finding(message, field=path, type=FieldErrorType.REQUIRED)


def duplicate(path: str, value: object) -> Finding:
    """A value that occurred before."""
    return Finding(f"Duplicate value: {_shown(value)}", field=path, type=FieldErrorType.DUPLICATE)


def forbidden(path: str, detail: str) -> Finding:
    """A field that must not be set here."""
    return Finding(f"Forbidden: {detail}", field=path, type=FieldErrorType.FORBIDDEN)


def not_supported(path: str, value: str, supported: Sequence[str]) -> Finding:
    """A word outside a closed set."""
    names = ", ".join(_shown(name) for name in supported)
    return Finding(
        f"Unsupported value: {_shown(value)}: supported values: {names}",
        field=path,
        type=FieldErrorType.NOT_SUPPORTED,
        suggestion=nearest(value, supported),
    )


def without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in order, equal ones once (field.ErrorList.ToAggregate)."""
    return list(dict.fromkeys(findings))


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
