"""The JSON of `berth check-config -o json`, which the parity replay compares too; the completed document.

The completed document is shown by the endpoint `/configz` and by `berth scheduler --write-config-to`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from berth_host.config.configuration import EnabledPlugin, LoadedConfiguration, ResolvedProfile
from berth_host.config.decoding.scheduler_v1 import PluginConfig
from berth_host.config.decoding.types_v1 import PLUGIN_SETS
from berth_host.config.default_plugins import WEIGHTED_POINTS
from berth_host.config.defaulting import PLACEMENTS_TO_SCORE
from berth_host.config.errors import ConfigurationError
from berth_host.config.source.node import Json


def configuration_to_json(loaded: LoadedConfiguration) -> dict[str, Json]:
    """`config`, `profiles`, `berth` and `warnings`; `converted` where an older file was converted to v1."""
    result: dict[str, Json] = {
        "config": dict(loaded.scheduler_json),
        "profiles": [profile_to_json(profile, loaded.emulation.absent_fields) for profile in loaded.profiles],
        "berth": loaded.berth.to_json(),
        "warnings": list(loaded.warnings),
    }
    if loaded.converted_from is not None:
        result["converted"] = dict(loaded.document)
    return result


def completed_document(loaded: LoadedConfiguration) -> dict[str, Json]:
    """Return the first document with everything filled in: as `/configz` shows and `--write-config-to` writes
    it.
    """
    document = dict(loaded.scheduler_json)
    extenders = document.pop("extenders", None)
    absent = loaded.emulation.absent_fields
    points = [point for point in PLUGIN_SETS if f"plugins.{point}" not in absent]
    document["profiles"] = [_completed_profile(profile, points) for profile in loaded.profiles]
    if extenders:
        document["extenders"] = extenders
    return {"kind": document.pop("kind"), "apiVersion": document.pop("apiVersion"), **document}


def _completed_profile(profile: ResolvedProfile, points: Iterable[str]) -> Json:
    sets: dict[str, Json] = {point: profile.merged_plugins.get(point, {}) for point in points}
    shown: dict[str, Json] = {"schedulerName": profile.scheduler_name}
    if profile.percentage_of_nodes_to_score is not None:
        shown["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    if profile.percentage_of_placements_to_score is not None:
        shown[PLACEMENTS_TO_SCORE] = profile.percentage_of_placements_to_score
    return {**shown, "plugins": sets, "pluginConfig": _plugin_config_to_json(profile.plugin_config)}


def profile_to_json(profile: ResolvedProfile, absent_fields: frozenset[str] = frozenset()) -> dict[str, Json]:
    """One profile; `frameworkPluginConfig` only where it says more than `pluginConfig` sorted by name.
    `absent_fields`: as in `Emulation`; these are left out.
    """
    percentages: dict[str, Json] = {
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
        PLACEMENTS_TO_SCORE: profile.percentage_of_placements_to_score,
    }
    result: dict[str, Json] = {
        "schedulerName": profile.scheduler_name,
        **{name: value for name, value in percentages.items() if name not in absent_fields},
        "plugins": {
            point: [_plugin_to_json(point, plugin) for plugin in plugins]
            for point, plugins in profile.plugins.items()
        },
        "mergedPlugins": dict(profile.merged_plugins),
        "pluginConfig": _plugin_config_to_json(profile.plugin_config),
    }
    given = sorted(profile.plugin_config, key=lambda config: config.name)
    if tuple(given) != profile.framework_plugin_config:
        result["frameworkPluginConfig"] = _plugin_config_to_json(profile.framework_plugin_config)
    return result


def error_to_json(error: ConfigurationError) -> dict[str, Json]:
    """`error` with kind, text and rejected fields; `config` where loading came that far.

    `warnings` where an older file was converted before it was rejected.
    """
    errors: list[Json] = [
        {
            "type": finding.type.value if finding.type is not None else "",
            "field": finding.field,
            "text": finding.located(error.source),
        }
        for finding in error.errors
    ]
    result: dict[str, Json] = {"error": {"kind": error.kind, "text": error.text, "errors": errors}}
    if error.config is not None:
        result["config"] = dict(error.config)
    if error.warnings:
        result["warnings"] = list(error.warnings)
    return result


def _plugin_to_json(point: str, plugin: EnabledPlugin) -> Json:
    if point in WEIGHTED_POINTS:
        return {"name": plugin.name, "weight": plugin.weight}
    return {"name": plugin.name}


def _plugin_config_to_json(configs: Sequence[PluginConfig]) -> list[Json]:
    return [{"name": config.name, "args": config.args} for config in configs]
