"""A configuration file as a command names it -> LoadedConfiguration, with all plugins that can be found.

Called by `simulation` and `scheduler`. Which points a foreign plugin in process has is read from its class;
for one in another process the file says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from berth_host.app.registry import ClassRegistry, load_class, points_of_class
from berth_host.cli import standard_input
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.loading import default_configuration, load_berth_configuration, load_configuration
from berth_host.config.overrides import NO_OVERRIDES, Overrides

NO_EXTENDERS: Final = "HTTP extenders are not in this release: remove extenders from the configuration"


def load(
    path: str | None,
    plugins: Mapping[str, type] | None = None,
    *,
    convert_older: bool = True,
    feature_gates: Mapping[str, bool] | None = None,
    overrides: Overrides = NO_OVERRIDES,
    read_stdin: Callable[[], str] = standard_input.read_text,
) -> LoadedConfiguration:
    """The configuration at `path` (-: standard input), or the default one; `plugins` are the program's own.

    `convert_older`: a file of an older version is converted to v1, with warnings, and not refused.
    `feature_gates` and `overrides`: the command line's settings. Raises ConfigurationError and
    PluginLoadError.
    """
    registered = ClassRegistry(plugins).points()
    if path is None:
        return default_configuration(
            registered=registered, feature_gates=feature_gates or {}, overrides=overrides
        )
    source = standard_input.NAME if path == standard_input.SIGN else path
    text = _read(source, read_stdin if path == standard_input.SIGN else partial(_text_of, path))
    registered |= _points_in_process(text, source)
    return load_configuration(
        text,
        source=source,
        registered=registered,
        convert_older=convert_older,
        feature_gates=feature_gates or {},
        overrides=overrides,
    )


def for_simulation(
    path: str | None,
    plugins: Mapping[str, type] | None = None,
    *,
    convert_older: bool = True,
    read_stdin: Callable[[], str] = standard_input.read_text,
) -> LoadedConfiguration:
    """As `load`, and nothing in it that a simulation would have to ignore."""
    result = load(path, plugins, convert_older=convert_older, read_stdin=read_stdin)
    return without_extenders(result, path)


def without_extenders(loaded: LoadedConfiguration, path: str | None) -> LoadedConfiguration:
    """The configuration itself. Raises ConfigurationError for settings that no release supports yet."""
    if loaded.scheduler.extenders:
        raise ConfigurationError("validation", [Finding(NO_EXTENDERS, field="extenders")], source=path or "")
    return loaded


def _points_in_process(text: str, source: str) -> Mapping[str, frozenset[str]]:
    """The points of the classes that BerthConfiguration names (`inProcess: module:Class`)."""
    try:
        berth = load_berth_configuration(text, source=source)
    except ConfigurationError:
        # Loading the whole file says it again, beside the errors of the other document.
        return {}
    return {
        plugin.name: points_of_class(plugin.name, load_class(plugin.name, plugin.in_process))
        for plugin in berth.plugins
        if plugin.in_process is not None
    }


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _read(source: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError as err:
        problem = f"cannot be read: {err.strerror}"
    except UnicodeDecodeError as err:
        problem = f"is not UTF-8 text (byte {err.start}): save it as UTF-8"
    raise ConfigurationError("decode", [Finding(problem)], source=source)
