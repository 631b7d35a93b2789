"""What a plugin's signature says of its concern with a pod. Read by both implementations of `Answers`."""

from __future__ import annotations

from collections.abc import Hashable

from berth_sdk.extension_points import NoConcern


def concern(signature: Hashable) -> NoConcern | None:
    """What is none of the plugin's business, said alone or as the first part of a pair; None: it has some."""
    if type(signature) is NoConcern:
        return signature
    if type(signature) is tuple and len(signature) == 2 and type(signature[0]) is NoConcern:
        return signature[0]
    return None
