"""Plugin names -> classes: those handed to `run(plugins=...)`, and the entry points of `berth.plugins`.

The configuration reads which names exist, and at which points; `clients` reads which class to make.
No import statement names a plugin: the registry finds default and other plugins in the same way.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.runtime.descriptor import describe
from berth_sdk.runtime.raised import author_trace, is_class, place_of, place_of_class, raised_text

from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.errors.plugins import DuplicatePluginError, PluginLoadError
from berth_host.log import get_logger
from berth_host.log.hidden import without_hidden

GROUP: Final = "berth.plugins"
_PARTS: Final = frozenset({"normalizeScore", "normalizePlacementScore"})
"""The points of the contract that are parts of other points in a profile."""
_LOG = get_logger()
_WORKING_FOLDER: Final = ""
"""The current working folder, as `sys.path` spells it."""


class MissingPluginsError(PluginLoadError):
    """The default plugins are not installed."""

    def __init__(self) -> None:
        super().__init__(
            next(iter(DEFAULT_PLUGINS_BY_NAME)),
            f"entry points {GROUP}",
            "no default plugin is installed: install berth-plugins (pip install berth-plugins)",
        )


class ClassRegistry:
    """Classes by plugin name. Entry points are loaded when a configuration asks for them."""

    def __init__(self, given: Mapping[str, type] | None = None) -> None:
        """Take up `given`, classes of a custom scheduler, and the installed plugins.

        Raises DuplicatePluginError, PluginLoadError, and MissingPluginsError without default plugins.
        """
        self._entry_points: dict[str, EntryPoint] = {}
        for entry_point in _installed(_state_of_path()):
            self._entry_points.setdefault(entry_point.name, entry_point)
        if not self._entry_points.keys() & DEFAULT_PLUGINS_BY_NAME.keys():
            raise MissingPluginsError
        self._given = dict(given or {})
        for name, cls in self._given.items():
            _checked(name, "of this program", cls)
            if name in self._entry_points or name in DEFAULT_PLUGINS_BY_NAME:
                raise DuplicatePluginError(name)

    @property
    def names(self) -> list[str]:
        """Every name that has a class here."""
        return sorted(self._given.keys() | self._entry_points.keys())

    def find(self, name: str) -> type | None:
        """Return the class called `name`, or None. Raises PluginLoadError."""
        if name in self._given:
            return self._given[name]
        entry_point = self._entry_points.get(name)
        if entry_point is None:
            return None
        try:
            loaded = entry_point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as err:  # a module may raise anything while it is imported
            raise not_loaded(name, entry_point.value, err) from err
        return _checked(name, entry_point.value, loaded)

    def points(self) -> dict[str, frozenset[str]]:
        """Return the points of every plugin that is not one of the default plugins, by name."""
        return {
            name: points_of_class(name, found)
            for name in self.names
            if name not in DEFAULT_PLUGINS_BY_NAME and (found := self.find(name)) is not None
        }


def _state_of_path() -> tuple[tuple[str, int], ...]:
    """Return every entry of `sys.path` with its time of change in nanoseconds; 0 for one that is missing.

    An installation adds or removes a folder in one of them.
    """
    found = []
    for entry in sys.path:
        try:
            changed_ns = Path(entry).stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        found.append((entry, changed_ns))
    return tuple(found)


@lru_cache(maxsize=1)
def _installed(_path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of plugins. `_path`: as long as it is the same, so are they.

    The standard library reads a file of every installed distribution, each time.
    """
    return tuple(entry_points(group=GROUP))


def load_class(name: str, where: str) -> type:
    """Return the class at `where`, which is `module:Class`. Raises PluginLoadError.

    The module may be in the working folder, as in a plugin's `command`.
    """
    module_name, _, attribute = where.partition(":")
    if _WORKING_FOLDER not in sys.path:
        sys.path.insert(0, _WORKING_FOLDER)
    try:
        loaded = getattr(importlib.import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # see `find`
        raise not_loaded(name, where, err) from err
    return _checked(name, where, loaded)


def points_of_class(name: str, cls: type) -> frozenset[str]:
    """Return the points that a class takes part in, spelled as in profiles. Raises PluginLoadError."""
    try:
        descriptor = describe(cls, name)
    except PluginDefinitionError as err:
        raise PluginLoadError(name, place_of_class(cls), err) from err
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # a metaclass of the plugin's may raise anything
        raise not_loaded(name, place_of_class(cls), err) from err
    return frozenset(point.config_name for point in descriptor.points) - _PARTS


def not_loaded(name: str, where: str, err: BaseException) -> PluginLoadError:
    """Return the error for an exception of foreign code. With -v the log has the traceback."""
    place = place_of(err)
    if place:
        _LOG.debug("plugin.not_loaded", plugin=name, exc_info=(type(err), err, author_trace(err)))
    plain = not place and isinstance(err, ImportError | AttributeError | ValueError)
    return PluginLoadError(name, where, without_hidden(str(err) if plain else raised_text(err)))


def _checked(name: str, where: str, loaded: object) -> type:
    if not is_class(loaded):
        raise PluginLoadError(name, where, f"it is a {type(loaded).__name__}, not a class")
    return loaded
