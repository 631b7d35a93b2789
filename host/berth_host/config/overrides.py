"""The command line's replacements for the file: fields of the first document, after its defaults.

Made by the command line of `berth scheduler`, applied by the loader between defaults and validation, so that
they are validated too. Source: `cmd/kube-scheduler/app/options/options.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from berth_host.config.decoding.types_v1 import KubeSchedulerConfigurationV1


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values by attribute of the versioned types (`decoding/types_v1`); durations in nanoseconds as well."""

    leader_election: Mapping[str, Any] = field(default_factory=dict)
    client_connection: Mapping[str, Any] = field(default_factory=dict)
    top: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, config: KubeSchedulerConfigurationV1) -> KubeSchedulerConfigurationV1:
        """The document with these values in it."""
        return replace(
            config,
            leader_election=replace(config.leader_election, **self.leader_election),
            client_connection=replace(config.client_connection, **self.client_connection),
            **self.top,
        )


NO_OVERRIDES = Overrides()
