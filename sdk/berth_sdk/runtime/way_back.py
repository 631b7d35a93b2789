"""`calls_host`: True if the code of a plugin class calls the host. `descriptor.describe` uses it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Final

from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle

LOCAL: Final = frozenset({"objects", "snapshot"})
"""Methods of the handle that read the local copy of the state."""
WAY_BACK: Final = frozenset(name for name in vars(Handle) if not name.startswith("_")) - LOCAL
"""Methods of the handle that call the host."""
HANDLE: Final = "handle"


def calls_host(cls: type) -> bool:
    """Return True if the class, or a function of its module, names the handle and a call to the host.

    The names in the compiled code decide; no code runs. A call in another module is not found: such a class
    sets `Plugin.handle_required`.
    """
    names: set[str] = set()
    for code in _codes(cls):
        names.update(code.co_names, code.co_varnames)
    return HANDLE in names and not WAY_BACK.isdisjoint(names)


def _codes(cls: type) -> Iterator[CodeType]:
    """Yield all code of the class, its bases and the modules that define them."""
    for base in cls.__mro__:
        if base in (object, Plugin):
            continue
        module = sys.modules.get(base.__module__)
        beside = () if module is None else vars(module).values()
        own = (one for one in beside if isinstance(one, FunctionType) and one.__module__ == base.__module__)
        for member in (*vars(base).values(), *own):
            function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
            if isinstance(function, FunctionType):
                yield from _nested(function.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
