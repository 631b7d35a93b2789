"""Pods that stay pending, grouped by reason."""

from __future__ import annotations

from berth_host.cli.rendering.terminal import PLAIN, Terminal
from berth_sim.commands.rendering.report import pending_lines
from berth_sim.commands.report import PendingPod


def pods(*names: str, message: str = "full", owner: str | None = None) -> list[PendingPod]:
    return [PendingPod(pod=f"ns/{name}", message=message, owner=owner) for name in names]


def test_reason_is_printed_once_below_all_its_pods() -> None:
    web = pods("web-0", "web-1", "web-2", owner="Deployment/ns/web")
    given = [*web[:1], *pods("gated", message="gated"), *web[1:], *pods("a", "b")]
    assert list(pending_lines(given, PLAIN)) == [
        "  ns/web-0 and 2 more like it   (Deployment/ns/web)",
        "  ns/a, ns/b",
        "    full",
        "  ns/gated",
        "    gated",
    ]


def test_of_many_pods_without_an_owner_the_first_four_are_named() -> None:
    lines = list(pending_lines(pods(*"abcdef"), PLAIN))
    assert lines == ["  ns/a, ns/b, ns/c, ns/d and 2 more", "    full"]


def test_remark_names_its_pod_where_several_kinds_share_the_reason() -> None:
    given = [*pods("w-0", "w-1", owner="Job/ns/w"), *pods("alone", message="other")]
    assert "    lacks w-0" in pending_lines(given, PLAIN, lambda pod: [f"lacks {pod.pod[3:]}"])
    mixed = [*pods("w-0", owner="Job/ns/w"), *pods("a", "b")]
    lines = list(pending_lines(mixed, PLAIN, lambda pod: ["lacks memory"]))
    assert lines[-2:] == ["    ns/w-0: lacks memory", "    ns/a: lacks memory"]


def test_reason_keeps_to_the_width_of_the_terminal() -> None:
    lines = list(pending_lines(pods("a", message="many words " * 9), Terminal(30, has_colour=True)))
    assert lines[0] == "\x1b[33m  ns/a\x1b[0m"
    assert lines[1].splitlines()[0] == "    many words many words many"
    assert all(line.startswith("    ") and len(line) <= 30 for line in lines[1].splitlines())
