"""Misspelt names in a plugin class: methods and attributes that are never read, or are another framework's.

`descriptor.describe` calls it, so the host, a server, `berth_sdk.testing` and `berth check-config` refuse the
same classes. A name that the class's own code uses is a helper, and so are private names and constants. Names
of a base class from another distribution are not checked, unless that class is a plugin itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.extension_points import Plugin
from berth_sdk.runtime.raised import is_class

_OTHERS: Final[Mapping[str, str]] = {
    "aclose": "close",
    "addpod": "add_pod",
    "addpods": "add_pod",
    "dispose": "close",
    "eventstoregister": "events",
    "filterall": "filter_nodes",
    "filternode": "filter` or `filter_nodes",
    "filterpod": "filter",
    "filtertable": "filter_nodes",
    "isschedulable": "queueing_hint",
    "lessthan": "less",
    "nodeneeds": "needs",
    "normalise": "normalize",
    "normalisescore": "normalize",
    "normalisescores": "normalize",
    "normalizescore": "normalize",
    "normalizescores": "normalize",
    "onbind": "bind` or `post_bind",
    "onbound": "post_bind",
    "onclose": "close",
    "onevent": "queueing_hint",
    "oninit": "__init__",
    "onload": "__init__",
    "onreconnect": "reconcile",
    "onrestart": "reconcile",
    "onshutdown": "close",
    "onstart": "__init__",
    "onstartup": "__init__",
    "onstop": "close",
    "onunload": "close",
    "podneed": "needs",
    "podneeds": "needs",
    "predicate": "filter",
    "prefilternodes": "pre_filter",
    "prescorenodes": "pre_score",
    "prioritise": "score",
    "prioritize": "score",
    "queueinghints": "queueing_hint",
    "removepod": "remove_pod",
    "removepods": "remove_pod",
    "scoreall": "score_nodes",
    "scorenode": "score` or `score_nodes",
    "scorepod": "score",
    "scoretable": "score_nodes",
    "shutdown": "close",
    "signpod": "sign",
    "sortkeys": "sort_key",
    "stateneed": "needs",
    "stateneeds": "needs",
    "teardown": "close",
}
"""Names of these methods in other schedulers, kube-scheduler, the contract (`SortKeys`) and older versions of
this SDK, in lower case without underscores, and the names in this SDK.
"""
_ENDINGS: Final = ("s", "d", "ed", "r", "er")
"""Endings that make another word from a method's name: a helper may be called `reserved` or `filters`."""
_SHORT: Final = 5
"""Letters of a name in which another letter makes another word (`bind`, `find`)."""


def check_names(title: str, cls: type, methods: Iterable[str]) -> None:
    """Check that no public name of a class looks like a name of the SDK. `methods`: all of the SDK's methods.

    Raises PluginDefinitionError, which names the similar name.
    """
    attributes = [name for name in Plugin.__annotations__ if not name.startswith("_")]
    ours = {_plain(name): name for name in (*methods, *attributes)}
    known = {*ours.values(), "args", "handle"}
    authors = [one for one in cls.__mro__ if _is_authors(one, cls)]
    used = frozenset(name for one in authors for name in _used_names(vars(one).values()))
    for one in authors:
        for name, value in vars(one).items():
            if name in known or name in used or name.startswith("_") or name.isupper():
                continue
            meant = _meant(name, ours)
            if meant:
                is_method = callable(getattr(value, "__func__", value)) and not is_class(value)
                what = "method" if is_method else "attribute"
                origin = "" if one is cls else f" of its base class {one.__qualname__}"
                raise PluginDefinitionError(
                    f"{title} has the {what} `{name}`{origin}, which is never read: did you mean `{meant}`?"
                    f" Rename it, or call it `_{name}` if it is your own"
                )


def _is_authors(one: type, cls: type) -> bool:
    if one in (Plugin, object):
        return False
    return issubclass(one, Plugin) or _package(one) == _package(cls)


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _meant(name: str, ours: Mapping[str, str]) -> str:
    plain = _plain(name)
    if plain in _OTHERS:
        return _OTHERS[plain]
    if plain in ours:
        return ours[plain]
    for own in ours:
        if any(own + ending == plain for ending in _ENDINGS):
            return ""
    for own, written in ours.items():
        # A missing `s`: `need`, `event`, `deadline`.
        if own == f"{plain}s" or (_is_near(plain, own) and name.count("_") == written.count("_")):
            return written
    return ""


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_near(one: str, other: str) -> bool:
    """Return True if the names differ by one added, missing or other letter, or by two swapped letters.

    For short names, only swapped letters count.

    >>> _is_near("permitt", "permit"), _is_near("find", "bind"), _is_near("socre", "score")
    (True, False, True)
    """
    if one == other:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    if len(left) == len(right) and left[:2] == right[1::-1] and left[2:] == right[2:] and len(left) > 1:
        return True
    if min(len(one), len(other)) <= _SHORT:
        return False
    return left[1:] == right or left == right[1:] or left[1:] == right[1:]


def _used_names(values: Iterable[Any]) -> Iterator[str]:
    """Yield the names that the code of these methods and properties reads or calls."""
    for value in values:
        for part in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "func"))):
            code = getattr(part, "__code__", None)
            if isinstance(code, CodeType):
                yield from _names_in(code)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
