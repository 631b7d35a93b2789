"""The expander's choice among the options of cluster-autoscaler, and the reading of these."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from expander_options import Option, RefusedError, Tried, choose, options_of
from support.autoscaler import messages_of, node, pod, question


def option(group: str, cpu: str, pods: int, count: int = 1) -> Option:
    return Option(
        group=group,
        count=count,
        node=Node.from_object({"apiVersion": "v1", "kind": "Node", **node(group, cpu=cpu)}),
        pods=[Pod.from_object({"apiVersion": "v1", "kind": "Pod", **pod(f"p{i}")}) for i in range(pods)],
    )


async def tried_of(
    options: Sequence[Option], fitting: dict[str, int], late: str = ""
) -> tuple[list[str], list[str]]:
    """Choose where only so many pods of a group fit. Return the best groups, and the groups asked about."""
    asked: list[str] = []

    async def try_option(one: Option, _: float) -> Tried:
        asked.append(one.group)
        if one.group == late:
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
        return Tried(option=one, placed=one.pods[: fitting.get(one.group, len(one.pods))], reason="")

    found = await choose(options, try_option, time.monotonic() + 60)
    return [one.option.group for one in found], asked


async def test_only_options_that_can_still_be_the_best_are_asked_about() -> None:
    options = [
        option("huge", "64", 4),
        option("fits", "8", 4),
        option("few", "2", 2),
        option("none", "8", 4, 0),
    ]
    assert await tried_of(options, {}) == (["fits"], ["fits"])
    assert await tried_of(options, {"fits": 3}) == (["huge"], ["fits", "huge"])
    assert await tried_of(options, {"fits": 1, "huge": 1}) == (["few"], ["fits", "huge", "few"])
    assert await tried_of(options, {"fits": 0, "huge": 0, "few": 0}) == ([], ["fits", "huge", "few"])


async def test_out_of_time_a_whole_option_is_good_enough_and_a_part_of_one_is_not() -> None:
    options = [option("a", "8", 4), option("b", "8", 4)]
    assert await tried_of(options, {}, late="b") == (["a"], ["a", "b"])
    with pytest.raises(RefusedError, match="too late"):
        await tried_of(options, {"a": 3}, late="b")


def test_unused_share_counts_cpu_memory_and_extended_resources() -> None:
    wide = option("wide", "8", 4, count=2)
    assert wide.unused(wide.pods) == pytest.approx(((1 - 4 / 16) + (1 - 4 / 64)) / 2)
    gpus = Node.from_object({"apiVersion": "v1", "kind": "Node", **node("gpu", cpu="4", gpus=1)})
    with_gpus = Option(group="gpu", count=1, node=gpus, pods=wide.pods)
    assert with_gpus.unused(wide.pods) == pytest.approx((0 + (1 - 4 / 32) + 1 + 1) / 4)


def test_bytes_count_where_both_forms_are_there(tmp_path: Path) -> None:
    """A cluster-autoscaler between both forms sends both."""
    messages = messages_of(tmp_path)
    both = question(messages, [("a", 1, [pod("new")])], {"a": node("a", cpu="8")})
    old = question(messages, [], {"a": node("a", cpu="1")}, form="messages")
    (found,) = options_of(both + old)
    assert found.node.allocatable["cpu"] == 8000
    assert [one.name for one in found.pods] == ["new"]
