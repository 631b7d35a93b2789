"""Named formats: whether a text is a DNS label, a label's value, a date and so on.

Source: `apiserver/pkg/cel/library/format.go`, `apimachinery/pkg/util/validation` and `kube-openapi`
`pkg/validation/strfmt`, v1.37.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from berth_plugins.cel.declarations import FORMAT
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.formatting import quoted
from berth_plugins.cel.functions.urls import request_uri
from berth_plugins.cel.values import NOTHING, Opaque, Optional, Value

Validate = Callable[[str], list[str]]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I | re.A)
_BYTES: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.A
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.A)
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", re.A)


class Format(Opaque):
    """A named format. `regex_size`: the length of a regular expression, for the cost of a validation."""

    __slots__ = ("name", "regex_size", "validate")
    cel_type = FORMAT

    def __init__(self, name: str, regex_size: int, validate: Validate) -> None:
        self.name = name
        self.regex_size = regex_size
        self.validate = validate

    def equals(self, other: Value) -> bool:
        """Compare with another format. Raises EvalError for another value."""
        if not isinstance(other, Format):
            raise EvalError("no such overload")
        return self.name == other.name


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _described(message: str, regex: str, *examples: str) -> str:
    shown = " or ".join(f"'{one}', " for one in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{regex}')"


def _length(text: str, limit: int) -> list[str]:
    return [_too_long(limit)] if len(text.encode()) > limit else []


def _label(text: str) -> list[str]:
    errors = _length(text, 63)
    if re.fullmatch(_LABEL, text) is None:
        if re.fullmatch(_SUBDOMAIN, text):
            errors.append("must not contain dots")
        else:
            message = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
                "must start and end with an alphanumeric character"
            )
            errors.append(_described(message, _LABEL, "my-name", "123-abc"))
    return errors


def _subdomain(text: str) -> list[str]:
    errors = _length(text, 253)
    if re.fullmatch(_SUBDOMAIN, text) is None:
        message = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
        errors.append(_described(message, _SUBDOMAIN, "example.com"))
    return errors


def _label_1035(text: str) -> list[str]:
    errors = _length(text, 63)
    if re.fullmatch(_LABEL_1035, text) is None:
        message = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
            "alphabetic character, and end with an alphanumeric character"
        )
        errors.append(_described(message, _LABEL_1035, "my-name", "abc-123"))
    return errors


def _prefix_of(validate: Validate) -> Validate:
    """Return a check of the beginning of a generated name, which may end with a dash."""
    return lambda text: validate(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    message = (
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character"
    )
    described = _described(message, _KEY, "MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {described} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    errors: list[str] = []
    if len(parts) == 2:
        reasons = _subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        errors += [f"prefix part {one}" for one in reasons]
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        errors.append(f"name part {_too_long(63)}")
    if re.fullmatch(_KEY, name) is None:
        errors.append(f"name part {described}")
    return errors


def _label_value(text: str) -> list[str]:
    errors = _length(text, 63)
    if re.fullmatch(f"({_KEY})?", text) is None:
        message = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
        errors.append(_described(message, f"({_KEY})?", "MyValue", "my_value", "12345"))
    return errors


def _uri(text: str) -> list[str]:
    try:
        request_uri(text)
    except ValueError as err:
        return [f"parse {quoted(text)}: {err}"]
    return []


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_datetime(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    match = _TIME.fullmatch(time.partition("t")[0])
    if len(text) < 4 or match is None or not _is_date(day):
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _or(message: str, is_valid: Callable[[str], object]) -> Validate:
    return lambda text: [] if is_valid(text) else [message]


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", 30, _label),
    "dns1123Subdomain": Format("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": Format("DNS1035Label", 30, _label_1035),
    "qualifiedName": Format("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", 30, _prefix_of(_label)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", 60, _prefix_of(_subdomain)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", 30, _prefix_of(_label_1035)),
    "labelValue": Format("LabelValue", 40, _label_value),
    "uri": Format("URI", 1103, _uri),
    "uuid": Format("uuid", 70, _or("does not match the UUID format", _UUID.fullmatch)),
    "byte": Format("byte", 84, _or("invalid base64", _BYTES.fullmatch)),
    "date": Format("date", 71, _or("invalid date", _is_date)),
    "datetime": Format("datetime", 71, _or("invalid datetime", _is_datetime)),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NOTHING if found is None else Optional(found)


def _validate(one: Format, text: str) -> Optional:
    errors = one.validate(text)
    return Optional(errors) if errors else NOTHING


def _constant(one: Format) -> Callable[[], Format]:
    return lambda: one


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    **{f"format.{name}": _constant(one) for name, one in FORMATS.items()},
    "format-named": _named,
    "format-validate": _validate,
}
