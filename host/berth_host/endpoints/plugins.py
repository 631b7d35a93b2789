"""The answer to `GET /berth/v1/plugins`: where each plugin runs, and the results of its calls."""

from __future__ import annotations

from typing import Any, Protocol

from berth_host.attach.attachments import Condition
from berth_host.attach.host_attachments import HostAttachments
from berth_host.attach.state import ATTACHED, NOT_NEEDED
from berth_host.config.configuration import LoadedConfiguration
from berth_host.explain.pod_answer import timestamp
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.model.clock import Clock
from berth_host.plugins.clients import Clients
from berth_host.rpc.client import PluginClient


class HostOfPlugins(Protocol):
    """The parts of the host that this page shows."""

    configuration: LoadedConfiguration
    clients: Clients
    attachments: HostAttachments

    @property
    def clock(self) -> Clock:
        """The clock of the host."""
        ...

    def plugin_stats(self) -> dict[str, PluginStats]:
        """Return the cost of each plugin, by name."""
        ...


def plugins_answer(host: HostOfPlugins) -> dict[str, Any]:
    """Return the answer: every plugin of every profile, by name."""
    clients: dict[str, list[PluginClient]] = {}
    for by_name in host.clients.by_profile.values():
        for name, client in by_name.items():
            clients.setdefault(name, []).append(client)
    conditions: dict[str, list[Condition]] = {}
    for condition in host.attachments.attached_places.conditions():
        for name in condition.plugins:
            conditions.setdefault(name, []).append(condition)
    stats = host.plugin_stats()
    return {
        "plugins": [
            _plugin(host, clients[name], conditions.get(name, []), stats[name]) for name in sorted(clients)
        ],
        "missing": list(host.clients.missing),
        "answeredAt": timestamp(host.clock.now_s()),
    }


def _plugin(
    host: HostOfPlugins, clients: list[PluginClient], conditions: list[Condition], stats: PluginStats
) -> dict[str, Any]:
    first = clients[0]
    attached = host.attachments.attached_places.plugins.get(first.name)
    asked = None if attached is None or attached.active is None else attached.active.instance_id
    # First the instance that serves the plugin's calls, then the other attached instances.
    conditions = sorted(
        conditions, key=lambda one: (one.instance_id != asked, one.state not in (*ATTACHED, *NOT_NEEDED))
    )
    condition = conditions[0] if conditions else None
    return {
        "name": first.name,
        "runs": "inProcess" if condition is None else "attached",
        "available": first.available,
        "required": first.settings.required,
        "attachment": None if condition is None else _attachment(host, condition),
        "otherInstances": [_attachment(host, other) for other in conditions[1:]],
        "circuits": {
            circuit.point: {"state": circuit.state.value, "lastFailure": circuit.last_failure}
            for condition in conditions[:1]
            for circuit in condition.circuits
            if circuit.plugin == first.name
        },
        "profiles": [_profile(host, client) for client in clients],
        "policies": {
            point: {
                "deadlineMs": None if given.deadline_s is None else round(1000 * given.deadline_s, 3),
                "policy": None if given.policy is None else given.policy.value,
            }
            for point, given in first.settings.points.items()
        },
        "violations": stats.violations,
        "calls": [_call(name, figures) for name, figures in stats.items()],
    }


def _attachment(host: HostOfPlugins, condition: Condition) -> dict[str, Any]:
    return {
        "place": condition.place,
        "state": condition.state.value,
        "reason": condition.reason,
        "since": timestamp(host.clock.now_s() - condition.since_s),
        "instance": condition.instance_id,
        "transport": condition.carrier,
        "syncedBytes": condition.synced_bytes,
        "warnings": [
            *(f"plugin {name} {reason}" for name, reason in condition.unusable.items()),
            *condition.warnings,
        ],
    }


def _profile(host: HostOfPlugins, client: PluginClient) -> dict[str, Any]:
    """Return one profile's use of the plugin: the plugin's points that the profile enables."""
    profile = host.configuration.profile(client.profile)
    enabled = {} if profile is None else profile.plugins
    points = [
        point.config_name
        for point in client.points
        if any(entry.name == client.name for entry in enabled.get(point.config_name, ()))
    ]
    return {"schedulerName": client.profile, "points": points, "failing": client.is_failing}


def _call(name: str, figures: CallStats) -> dict[str, Any]:
    return {
        "call": name,
        "calls": figures.calls,
        "meanMs": round(1000 * figures.times.mean, 3),
        "p99Ms": round(1000 * figures.times.quantile(0.99), 3),
        "maxMs": round(1000 * figures.times.highest, 3),
        "totalMs": round(1000 * figures.times.total, 3),
        "repeats": figures.repeats,
        "overruns": figures.overruns,
        "bytesSent": figures.bytes_sent,
        "bytesReceived": figures.bytes_received,
        "failures": dict(figures.failures),
        "policies": dict(figures.policies),
    }
