"""Reads from a plugin's signature which points concern the pod. Read by both implementations of `Answers`."""

from __future__ import annotations

from collections.abc import Hashable

from berth_sdk.extension_points import NoConcern


def concern(signature: Hashable) -> NoConcern | None:
    """The NotConcerned in a signature, alone or as the first part of a pair; None: the pod concerns it."""
    if type(signature) is NoConcern:
        return signature
    if type(signature) is tuple and len(signature) == 2 and type(signature[0]) is NoConcern:
        return signature[0]
    return None
