"""NAME on the command line -> a plugin class: an entry point of `berth.plugins`, or `module:Class`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.extension_points import name_of
from berth_sdk.runtime.raised import is_class, place_of, raised_text

GROUP: Final = "berth.plugins"


def load_plugins(names: Iterable[str]) -> dict[str, type]:
    """Return the classes by the name they are served under. Raises PluginDefinitionError."""
    classes: dict[str, type] = {}
    for name in names:
        title, cls = _from_module(name) if ":" in name else (name, _from_entry_point(name))
        if title in classes:
            raise PluginDefinitionError(f"two plugins are named {title}: give one of them another `name`")
        classes[title] = cls
    return classes


def _from_entry_point(name: str) -> type:
    from importlib.metadata import entry_points  # slow to import, and module:Class does not need it

    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    entry = known.get(name)
    if entry is None:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        cure = (
            f"did you mean {near[0]}?" if near else f"installed plugins: {', '.join(sorted(known)) or 'none'}"
        )
        raise PluginDefinitionError(
            f"no installed plugin is named {name or repr(name)}: {cure}; to name a class, write module:Class"
        )
    try:
        loaded = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # a module may raise anything while it is imported
        raise _not_loaded(f"plugin {name} ({entry.value})", err) from err
    return _checked(name, loaded)


def _from_module(where: str) -> tuple[str, type]:
    module_name, _, attribute = where.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise PluginDefinitionError(
            f"{where} is no module:Class: write the names as in `from module import Class`, with the module's"
            " folder on PYTHONPATH"
        )
    # As with `python -m`: modules in the working directory can be named.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        loaded = getattr(importlib.import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # a module may raise anything while it is imported
        if isinstance(err, ImportError) and module_name.endswith(".py"):
            raise PluginDefinitionError(
                f"{where} names a file: write the module, as {module_name.removesuffix('.py')}:{attribute}"
            ) from None
        raise _not_loaded(where, err) from err
    cls = _checked(where, loaded)
    return name_of(cls), cls


def _not_loaded(what: str, err: BaseException) -> PluginDefinitionError:
    plain = isinstance(err, ImportError | AttributeError | ValueError) and not place_of(err)
    return PluginDefinitionError(f"{what} cannot be loaded: {err if plain else raised_text(err)}")


def _checked(where: str, loaded: object) -> type:
    if not is_class(loaded):
        kind = type(loaded).__name__
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        raise PluginDefinitionError(f"{where} is {article} {kind}, not a class: name the plugin's class")
    return loaded
