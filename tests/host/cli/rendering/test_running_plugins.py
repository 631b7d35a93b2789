"""The table of `berth plugins --server`: what an operator reads of instances that are not asked."""

from __future__ import annotations

from typing import Any

from berth_host.cli.rendering.running_plugins import running_plugins_text, running_states


def instance(name: str, state: str, reason: str = "") -> dict[str, Any]:
    return {
        "place": f"unix:///run/{name}.sock",
        "state": state,
        "reason": reason,
        "instance": name,
        "transport": "framed",
        "warnings": [],
    }


def answer(*instances: dict[str, Any]) -> dict[str, Any]:
    first, *others = instances
    plugin = {
        "name": "Far",
        "runs": "attached",
        "available": True,
        "required": False,
        "attachment": first,
        "otherInstances": others,
        "circuits": {},
        "profiles": [{"points": ["filter"]}],
        "calls": [],
        "violations": 0,
    }
    return {"plugins": [plugin], "missing": []}


def test_an_instance_that_is_refused_beside_the_one_that_is_asked_says_why() -> None:
    text = running_plugins_text(
        answer(
            instance("v2", "Active"),
            instance("v1", "Standby", "instance v2 is asked"),
            instance("v3", "Rejected", "refuses its arguments: no such tier"),
        )
    )
    table, problems = text.split("\n\n")
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["Far", "unix:///run/v2.sock", "Active"],
        ["Far", "unix:///run/v1.sock", "Standby"],
        ["Far", "unix:///run/v3.sock", "Rejected"],
    ]
    assert problems == "Far at unix:///run/v3.sock is rejected: refuses its arguments: no such tier\n"


def test_scope_that_a_plugin_declares_is_a_line_below_the_table() -> None:
    found = answer(instance("v2", "Active"))
    found["plugins"][0]["scope"] = "every pod"
    assert "scope" not in running_plugins_text(found)
    found["plugins"][0]["scope"] = "label selector kind=gpu"
    table, scopes = running_plugins_text(found).split("\n\n")
    assert len(table.splitlines()) == 2
    assert scopes == "Far declares its scope: label selector kind=gpu\n"


def test_watch_compares_every_instance() -> None:
    before, after = answer(instance("v2", "Active")), answer(instance("v2", "Active"))
    assert running_states(before) == running_states(after)
    after["plugins"][0]["otherInstances"].append(instance("v3", "Syncing"))
    assert running_states(before) != running_states(after)


def test_an_extender_is_a_row_and_its_failures_are_problems() -> None:
    calls: dict[str, Any] = {"call": "filter", "calls": 4, "totalMs": 8.0}
    calls |= {"failures": {"timeout": 1}, "policies": {"Ignore": 1}}
    extender = {
        "name": "extender gpu:80/x",
        "urlPrefix": "http://gpu:80/x",
        "verbs": {"filter": "filter", "bind": "tie"},
        "failing": ["filter"],
        "calls": [calls],
    }
    text = running_plugins_text(answer(instance("v2", "Active")) | {"extenders": [extender]})
    table, problems = text.split("\n\n")
    row = table.splitlines()[1]
    assert row.startswith("extender gpu:80/x")
    assert row.split()[2:8] == ["http://gpu:80/x", "filter", "fails", "HTTP", "4", "2.000"]
    assert row.split()[8:] == ["1", "filter,", "bind"]
    assert problems == "extender gpu:80/x: filter failed: 1 timeout, policy Ignore 1 times\n"
