"""Versions of kube-scheduler in tests: the option of the replays, and what a plugin is told of a version."""

from __future__ import annotations

import argparse
from typing import Any, Final, cast

from berth_host.config.emulation import VERSIONS
from berth_host.config.loading import default_configuration

OLDEST: Final = VERSIONS[0]
"""The version of every recording without a version in the name of its folder."""
OWN: Final = "none"
"""In place of a version: no emulation."""


def args_of(plugin: str, emulated_version: str) -> dict[str, Any]:
    """Return the arguments that a host that emulates a version gives to a default plugin."""
    (profile,) = default_configuration(emulated_version=emulated_version).profiles
    return cast(dict[str, Any], profile.plugin_args.get(plugin) or {})


def add_option(parser: argparse.ArgumentParser, default: str = OLDEST) -> None:
    """Add the option to the command line of a replay. Its value is empty for no emulation."""
    parser.add_argument(
        "--emulated-version",
        type=_version,
        default=default,
        metavar="VERSION",
        help=f"decide as this kube-scheduler: {', '.join(VERSIONS)}, or {OWN}; {default} by default",
    )


def _version(text: str) -> str:
    if text not in (*VERSIONS, OWN):
        raise argparse.ArgumentTypeError(f"{text} is not known: use one of {', '.join((*VERSIONS, OWN))}")
    return "" if text == OWN else text
