"""`--remote`: which plugins can be served from another process, and how the host finds them."""

from __future__ import annotations

import sys

import pytest
from berth_bench.remote import with_remote
from berth_host.config.berth.configuration import BerthConfiguration, BerthPlugin
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry
from berth_sdk import Plugin, Status
from support.gatekeeper import Steady

ENABLED = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}}}]\n"
)


def enabling(name: str, cls: type, berth: BerthConfiguration | None = None) -> LoadedConfiguration:
    registered = ClassRegistry({name: cls}).points()
    text = ENABLED.format(name=name)
    return load_configuration(text, source="test", registered=registered, berth=berth)


def command_of(configuration: LoadedConfiguration, name: str) -> list[str]:
    plugin = configuration.berth.plugin(name)
    assert plugin is not None
    assert plugin.required
    assert plugin.in_process is None
    return list(plugin.command or ())


def serve(where: str) -> list[str]:
    return [sys.executable, "-m", "berth_sdk", "serve", where]


def test_default_plugin_is_served_by_its_name() -> None:
    moved = with_remote(default_configuration(), ["NodeName", "NodeAffinity"], {})
    assert command_of(moved, "NodeName") == serve("NodeName")
    assert command_of(moved, "NodeAffinity") == serve("NodeAffinity")
    assert moved.profiles == default_configuration().profiles


def test_class_is_enabled_at_its_points_behind_the_others() -> None:
    moved = with_remote(default_configuration(), ["support.gatekeeper:Steady"], {})
    assert command_of(moved, "Steady") == serve("support.gatekeeper:Steady")
    (profile,) = moved.profiles
    filters = [plugin.name for plugin in profile.plugins_at("filter")]
    assert (filters[-1], filters[0]) == ("Steady", "NodeName")
    assert [plugin.weight for plugin in profile.plugins_at("score") if plugin.name == "Steady"] == [1]
    assert "Steady" not in [plugin.name for plugin in profile.plugins_at("bind")]


def test_class_that_the_profile_already_enables_is_only_served() -> None:
    own = BerthConfiguration(plugins=(BerthPlugin(name="Steady", in_process="support.gatekeeper:Steady"),))
    configuration = enabling("Steady", Steady, own)
    moved = with_remote(configuration, ["Steady"], {})
    assert command_of(moved, "Steady") == serve("support.gatekeeper:Steady")
    assert moved.profiles == configuration.profiles


def test_plugin_of_the_program_is_served_from_its_module() -> None:
    moved = with_remote(enabling("Mine", Steady), ["Mine"], {"Mine": Steady})
    assert command_of(moved, "Mine") == serve("support.gatekeeper:Steady")


def test_plugin_that_is_already_served_stays_served() -> None:
    elsewhere = BerthPlugin(name="Steady", endpoint="unix:///run/steady.sock")
    configuration = enabling("Steady", Steady, BerthConfiguration(plugins=(elsewhere,)))
    assert with_remote(configuration, ["Steady"], {}) == configuration


class Main(Plugin):
    def filter(self, state: object, pod: object, node: object) -> Status:
        return Status.success()


Main.__module__ = "__main__"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("Main", "is not in a module that can be imported", id="of the main file"),
        pytest.param("Nobody", "no profile enables it", id="unknown"),
        pytest.param("nowhere:Fit", "cannot be loaded", id="no module"),
        pytest.param("support.gatekeeper:Nobody", "cannot be loaded", id="no class"),
    ],
)
def test_plugin_that_cannot_be_served_is_refused(name: str, problem: str) -> None:
    with pytest.raises(PluginLoadError, match=problem):
        with_remote(enabling("Main", Main), [name], {"Main": Main})


def test_default_plugin_that_the_build_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassRegistry, "find", lambda self, name: None)
    with pytest.raises(PluginLoadError, match="this build does not have it"):
        with_remote(default_configuration(), ["NodeName"], {})
