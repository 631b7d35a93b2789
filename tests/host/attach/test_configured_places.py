"""The places and their plugins that follow from BerthConfiguration and profiles."""

from __future__ import annotations

from berth_host.attach.configured_places import Place, wanted_places
from berth_host.config.loading import load_configuration
from berth_host.rpc.call_rules import PointPolicy, Policy

HEAD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: one
  plugins:
    filter: {enabled: [{name: A}]}
    score: {enabled: [{name: A}, {name: B}]}
  pluginConfig:
  - name: A
    args: {limit: 3}
- schedulerName: two
  plugins:
    score: {enabled: [{name: B}]}
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
"""


def places(plugins: str) -> list[Place]:
    return wanted_places(load_configuration(HEAD + plugins, source="test"))


def test_plugins_of_one_endpoint_share_a_place() -> None:
    (place,) = places(
        "- {name: A, endpoint: 'unix:///run/p.sock'}\n- {name: B, endpoint: 'unix:///run/p.sock'}\n"
    )
    assert (place.endpoint, [plugin.name for plugin in place.plugins]) == ("unix:///run/p.sock", ["A", "B"])


def test_every_command_is_a_place_of_its_own() -> None:
    found = places("- {name: A, command: [serve, A]}\n- {name: B, command: [serve, A]}\n")
    assert [(place.command, place.plugins[0].name) for place in found] == [
        (("serve", "A"), "A"),
        (("serve", "A"), "B"),
    ]


def test_a_plugin_knows_the_profiles_and_points_that_enable_it() -> None:
    (place,) = places(
        "- {name: A, endpoint: 'unix:///a.sock', required: true}\n- {name: B, inProcess: 'm:C'}\n"
    )
    (plugin,) = place.plugins
    assert plugin.required
    (profile,) = plugin.profiles
    assert (profile.scheduler_name, profile.points) == ("one", frozenset({"filter", "score"}))
    assert profile.args == {"limit": 3}


def test_one_plugin_in_two_profiles_is_wanted_twice() -> None:
    found = places("- {name: A, endpoint: 'unix:///a.sock'}\n- {name: B, endpoint: 'unix:///b.sock'}\n")
    names = [profile.scheduler_name for profile in found[1].plugins[0].profiles]
    assert names == ["one", "two"]


def test_only_what_the_file_names_overrides_the_defaults() -> None:
    found = places(
        "- {name: A, endpoint: 'unix:///a.sock', points: {filter: {deadline: 100ms, policy: Ignore}}}\n"
        "- {name: B, inProcess: 'm:C'}\n"
    )
    assert found[0].plugins[0].points == {"filter": PointPolicy(0.1, Policy.IGNORE)}


def test_a_plugin_that_no_profile_enables_is_not_attached() -> None:
    idle = "- {name: Idle, endpoint: 'unix:///i.sock', points: {filter: {policy: Ignore}}}\n"
    assert places(f"- {{name: A, inProcess: 'm:C'}}\n- {{name: B, inProcess: 'm:C'}}\n{idle}") == []


def test_a_plugin_that_manages_resources_must_filter() -> None:
    other = "- {name: B, inProcess: 'm:C'}\n"
    (place,) = places(f"- {{name: A, endpoint: 'unix:///a', managedResources: [{{name: a.b/gpu}}]}}\n{other}")
    assert place.plugins[0].why_it_must_filter.startswith("does not implement filter, but manages a.b/gpu: ")
    (place,) = places(f"- {{name: A, endpoint: 'unix:///a'}}\n{other}")
    assert place.plugins[0].why_it_must_filter == ""
