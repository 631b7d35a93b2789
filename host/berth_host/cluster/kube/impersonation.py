"""Turns a kubeconfig's impersonation fields into HTTP headers. Called by `kubeconfig`.

Source: client-go `tools/clientcmd/validation.go` and `transport/round_trippers.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

_TOKEN_SIGNS: Final = "!#$&'*+-.^_`|~"
"""Characters that a header's name may contain besides letters and digits; others are escaped with `%`."""


def taken_impersonation(user: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Remove the impersonation fields from `user` and return their headers; empty for no impersonation.

    Raises ValueError, which names the field and the cure.
    """
    name, uid = (_text(user.pop(field, None), field) for field in ("as", "as-uid"))
    groups = _texts(user.pop("as-groups", None), "as-groups")
    extra = user.pop("as-user-extra", None) or {}
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) and key for key in extra):
        raise ValueError("as-user-extra is not a mapping of lists; write it as KEY: [VALUE]")
    values = {key: _texts(value, f"as-user-extra.{key}") for key, value in extra.items()}
    if not name:
        if uid or groups or values:
            raise ValueError("as-uid, as-groups and as-user-extra need a user beside them; set as")
        return ()
    return tuple(_headers(name, uid, groups, values))


def _headers(
    name: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", name
    if uid:
        yield "Impersonate-Uid", uid
    for group in groups:
        yield "Impersonate-Group", group
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe=_TOKEN_SIGNS)}", value


def _texts(value: Any, field: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{field} is not a list; write it as [VALUE]")
    return tuple(_text(one, field) for one in value)


def _text(value: Any, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{field} is {value!r}, not text; put it in quotes")
    if any(sign in value for sign in "\r\n\0"):
        raise ValueError(f"{field} has a line end in it, which a header cannot hold; take it out")
    return value
