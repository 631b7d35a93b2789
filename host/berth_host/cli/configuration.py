"""A configuration file that a command names -> LoadedConfiguration, with all plugins that are found.

`scheduler`, `check_config` and the commands of `berth_sim` call it. The extension points of an in-process
plugin are read from its class, those of a served plugin from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from berth_sdk.yaml.encoding import read_text

from berth_host.cli import standard_input
from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError, Finding, together
from berth_host.config.loading import (
    NO_OVERRIDES,
    OlderForms,
    Overrides,
    default_configuration,
    load_berth_configuration,
    load_configuration,
)
from berth_host.config.source.node import SourceNode
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry, load_class, points_of_class

if TYPE_CHECKING:
    from berth_host.older_config.component import ReadConfigMap

_NO_PLUGINS: Final[Mapping[str, frozenset[str]]] = {}


def load(
    path: str | None,
    plugins: Mapping[str, type] | None = None,
    *,
    convert_older: bool = True,
    feature_gates: Mapping[str, bool] | None = None,
    emulated_version: str = "",
    overrides: Overrides = NO_OVERRIDES,
    read_stdin: Callable[[], str] = standard_input.read_text,
    read_config_map: ReadConfigMap | None = None,
) -> LoadedConfiguration:
    """Return the configuration at `path` (-: standard input); None: the default configuration.

    `plugins`: classes of the program itself. `convert_older` True: convert a file of an older version to v1,
    with warnings; False: refuse it. `feature_gates`, `emulated_version` and `overrides`: settings of the
    command line. `read_config_map`: reads the ConfigMap of a policy; None: there is no API server. Raises
    ConfigurationError and PluginLoadError.
    """
    registered = ClassRegistry(plugins).points()
    if path is None:
        return default_configuration(
            registered=registered,
            feature_gates=feature_gates or {},
            overrides=overrides,
            emulated_version=emulated_version,
        )
    source = standard_input.NAME if path == standard_input.SIGN else path
    text = _read(source, read_stdin if path == standard_input.SIGN else partial(_text_of, path))
    return load_text(
        text,
        source,
        registered,
        convert_older=convert_older,
        feature_gates=feature_gates or {},
        emulated_version=emulated_version,
        overrides=overrides,
        read_config_map=read_config_map,
    )


def load_text(
    text: str,
    source: str,
    registered: Mapping[str, frozenset[str]],
    *,
    feature_gates: Mapping[str, bool],
    emulated_version: str = "",
    convert_older: bool = True,
    overrides: Overrides = NO_OVERRIDES,
    given: Mapping[str, frozenset[str]] = _NO_PLUGINS,
    cure: Callable[[str], str] = lambda _: "",
    read_config_map: ReadConfigMap | None = None,
    older: Callable[[], OlderForms] | None = None,
    berth: BerthConfiguration | None = None,
    amend: Callable[[SourceNode], SourceNode] | None = None,
) -> LoadedConfiguration:
    """Return the configuration in `text`, with the points of the classes that it names (`inProcess`).

    `given`: points by plugin name, of classes that are not loaded. `cure`: returns the end of the message
    about a class, by plugin name. `older`: returns the converter of older forms; None: the usual one.
    `berth`: a BerthConfiguration of another file. `amend`: as of `load_configuration`. Raises
    ConfigurationError, with all errors of both documents and of all classes that cannot be loaded.
    """
    points, unloadable = _points_in_process(text, source, given, cure, berth)
    try:
        loaded = load_configuration(
            text,
            source=source,
            registered={**registered, **points, **given},
            older=(older or partial(_older_forms, read_config_map)) if convert_older else None,
            feature_gates=feature_gates,
            emulated_version=emulated_version,
            overrides=overrides,
            berth=berth,
            amend=amend,
        )
    except ConfigurationError as err:
        # Profiles cannot be checked without the points of a class that could not be loaded.
        known = None if unloadable is not None and err.kind == "profile" else err
        raise together(*(error for error in (known, unloadable) if error is not None)) from err
    if unloadable is not None:
        raise unloadable
    return loaded


def for_simulation(
    path: str | None,
    plugins: Mapping[str, type] | None = None,
    *,
    convert_older: bool = True,
    feature_gates: Mapping[str, bool] | None = None,
    emulated_version: str = "",
    read_stdin: Callable[[], str] = standard_input.read_text,
) -> LoadedConfiguration:
    """Return the configuration as `load` does."""
    return load(
        path,
        plugins,
        convert_older=convert_older,
        feature_gates=feature_gates,
        emulated_version=emulated_version,
        read_stdin=read_stdin,
    )


def _older_forms(read_config_map: ReadConfigMap | None) -> OlderForms:
    # Not at the top: few files have an older form, and other starts are faster without this import.
    from berth_host.older_config.conversion import Converter

    return Converter(read_config_map)


def _points_in_process(
    text: str,
    source: str,
    given: Mapping[str, frozenset[str]],
    cure: Callable[[str], str],
    other: BerthConfiguration | None,
) -> tuple[Mapping[str, frozenset[str]], ConfigurationError | None]:
    """Return the points of the classes that can be loaded, and an error for the others, or None."""
    try:
        berth = other or load_berth_configuration(text, source=source)
    except ConfigurationError:
        # Loading the whole file reports the same error, beside those of the other document.
        return {}, None
    points, findings = {}, []
    for index, plugin in enumerate(berth.plugins):
        if plugin.in_process is None or plugin.name in given:
            continue
        try:
            cls = load_class(plugin.name, plugin.in_process)
            points[plugin.name] = points_of_class(plugin.name, cls)
        except PluginLoadError as err:
            findings.append(Finding(f"{err}{cure(plugin.name)}", field=f"plugins[{index}].inProcess"))
    return points, ConfigurationError("profile", findings, source=source) if findings else None


def _text_of(path: str) -> str:
    return read_text(Path(path))


def _read(source: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError as err:
        problem = f"cannot be read: {err.strerror}"
    except UnicodeDecodeError as err:
        problem = f"is not UTF-8 text (byte {err.start}): save it as UTF-8"
    raise ConfigurationError("decode", [Finding(problem)], source=source)
