"""Mutants of the kept answers of served plugins, for `tests/host/rpc/test_kept_served.py`.

Each breaks one of the ways in which an answer ends, or is not kept at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from berth_host.attach import handshake
from berth_host.attach.state_feed import InstanceFeed
from berth_host.framework.kept import keep_answers
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.rpc.client import PluginClient
from berth_sdk.cycle_state import CycleState
from berth_sdk.kept.follows import Follows, StaleSlots
from berth_sdk.tables import ObjectStore


def requeues_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The host does not hear that the plugin requeued pods; the plugin itself does."""
    patch.setattr(Follows, "forget", lambda self: None)


def instances_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    """The host keeps to what it began with, and uses it whichever instance is active."""
    instances = KeepAnswers._instances
    first: dict[int, Any] = {}

    def same(self: KeepAnswers) -> Any:
        now = instances(self)
        return first.setdefault(id(self), now) if now != (None,) else now

    patch.setattr(KeepAnswers, "_instances", same)


def answers_of_policies_are_kept(patch: pytest.MonkeyPatch) -> None:
    """A policy's stand-in counts as the plugin's answer."""
    patch.setattr(PluginClient, "is_failing", False)


def objects_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An object that the plugin reads has no version."""
    patch.setattr(InstanceFeed, "objects", lambda self, resource: ObjectStore())


def signing_by_code_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """The fields of the pod stand for what the class signs."""
    read = handshake._descriptor
    patch.setattr(handshake, "_descriptor", lambda *args: replace(read(*args), host_keeps_answers=True))


def tokens_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """PreFilter is left out although Filter needs its state."""
    patch.setattr(CycleState, "is_private", True)


def rows_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A node that changed keeps its verdict and its score."""
    patch.setattr(StaleSlots, "since_last", lambda self, columns: [])


def instances_are_not_told_apart_within_a_cycle(patch: pytest.MonkeyPatch) -> None:
    """A cycle keeps to the answers that it began with, although another instance is active now."""
    patch.setattr(KeepAnswers, "_kept_for", lambda self, cycle: keep_answers._begun(cycle))
