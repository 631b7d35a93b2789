"""Make deploy/grafana/berth.json, the dashboard of berth for Grafana.

    python tests/deploy/dashboard.py            write it
    python tests/deploy/dashboard.py --check    exit with 1 if the file differs

`test_dashboard` holds that every metric and label in it is one of `berth_host.metrics.families`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.places import ROOT

PATH: Final = ROOT / "deploy/grafana/berth.json"
_OWN: Final = 'namespace="$namespace", job=~"$job"'
_WIDTH: Final = 24
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph.

    queries: (expression, legend); `OWN` in an expression stands for the labels of the release.
    unit: as Grafana names units. width: of 24.
    """

    title: str
    says: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    kind: str = "timeseries"


def _rate(family: str, by: str = "") -> str:
    """Return the rate of a counter, summed by some labels."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({family}{{OWN}}[$__rate_interval]))"


def _quantiles(family: str, by: str, legend: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of the median and the 99th percentile of a histogram, by a label if one is given."""
    buckets = _rate(f"{family}_bucket", f"le, {by}" if by else "le")
    return tuple(
        (f"histogram_quantile({share}, {buckets})", f"{legend} p{share * 100:.0f}".strip())
        for share in (0.5, 0.99)
    )


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Health": (
        Panel(
            "Versions",
            "What runs, by replica.",
            "none",
            (("max by (version, kube, python) (berth_build_info{OWN})", "{{version}} as {{kube}}"),),
            6,
            "stat",
        ),
        Panel(
            "Leaders",
            "Replicas that lead; it should be 1.",
            "none",
            (("sum(leader_election_master_status{OWN})", "leaders"),),
            6,
            "stat",
        ),
        Panel(
            "Required plugins that cannot be called",
            "See the alert BerthPluginDown.",
            "none",
            (("max by (plugin) (berth_plugin_absent{OWN}) > 0", "{{plugin}}"),),
            6,
        ),
        Panel(
            "Open circuit breakers",
            "See the alert BerthBreakerOpen.",
            "none",
            (
                (
                    "max by (plugin, extension_point) (berth_plugin_circuit_open{OWN}) > 0",
                    "{{plugin}} {{extension_point}}",
                ),
            ),
            6,
        ),
    ),
    "Queue": (
        Panel(
            "Pending pods",
            "Pods in each part of the queue.",
            "short",
            (("max by (queue) (scheduler_pending_pods{OWN})", "{{queue}}"),),
        ),
        Panel(
            "Age of the oldest pending pod",
            "Since the pod was created.",
            "s",
            (("max by (queue) (berth_oldest_pending_pod_seconds{OWN})", "{{queue}}"),),
        ),
        Panel(
            "Pending pods by reason",
            "The plugin that gates them, or with which their last attempt failed; each pod once.",
            "short",
            (("max by (queue, plugin) (berth_pending_pods{OWN}) > 0", "{{plugin}} ({{queue}})"),),
        ),
        Panel(
            "Unschedulable pods by plugin",
            "The plugins that rejected them in their last attempt; a pod counts for each of them.",
            "short",
            (("max by (plugin) (scheduler_unschedulable_pods{OWN}) > 0", "{{plugin}}"),),
        ),
        Panel(
            "A second scheduler",
            "Nodes whose pods exceed their room; per second, pods of the queue that others bound, and pods"
            " whose node others filled. See the alert BerthNodesOverfull.",
            "short",
            (
                ("max(berth_overfull_nodes{OWN})", "overfull nodes"),
                (_rate("berth_pods_bound_by_others_total"), "bound by others"),
                (_rate("berth_bindings_given_up_total"), "node filled by others"),
            ),
        ),
        Panel(
            "Pods that came into the queue",
            "By the event that brought them.",
            "ops",
            (
                (
                    _rate("scheduler_queue_incoming_pods_total", "event"),
                    "{{event}}",
                ),
            ),
        ),
    ),
    "Scheduling": (
        Panel(
            "Attempts",
            "By how they ended.",
            "ops",
            (
                (
                    _rate("scheduler_schedule_attempts_total", "result"),
                    "{{result}}",
                ),
            ),
        ),
        Panel(
            "Time from activeQ to the bind",
            "Over all attempts of a pod.",
            "s",
            _quantiles("scheduler_pod_scheduling_sli_duration_seconds", "", ""),
        ),
        Panel(
            "Time of one attempt",
            "Its binding cycle included.",
            "s",
            _quantiles("scheduler_scheduling_attempt_duration_seconds", "result", "{{result}}"),
        ),
        Panel(
            "Time of an extension point",
            "All plugins of the point together.",
            "s",
            _quantiles(
                "scheduler_framework_extension_point_duration_seconds",
                "extension_point",
                "{{extension_point}}",
            ),
        ),
        Panel(
            "Preemptions",
            "Attempts to preempt, and victims.",
            "ops",
            (
                (_rate("scheduler_preemption_attempts_total"), "attempts"),
                (_rate("scheduler_preemption_victims_sum"), "victims"),
            ),
        ),
        Panel(
            "Waits at Permit",
            "By how they ended.",
            "s",
            _quantiles("scheduler_permit_wait_duration_seconds", "result", "{{result}}"),
        ),
    ),
    "Plugins": (
        Panel(
            "Calls",
            "Calls of each plugin.",
            "ops",
            ((_rate("berth_plugin_calls_total", "plugin"), "{{plugin}}"),),
        ),
        Panel(
            "Mean time of a call",
            "By plugin and call.",
            "s",
            (
                (
                    _rate("berth_plugin_call_seconds_total", "plugin, extension_point")
                    + " / "
                    + _rate("berth_plugin_calls_total", "plugin, extension_point"),
                    "{{plugin}} {{extension_point}}",
                ),
            ),
        ),
        Panel(
            "Failures",
            "Calls without a usable answer.",
            "ops",
            (
                (
                    _rate("berth_plugin_failures_total", "plugin, kind"),
                    "{{plugin}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Answers by a failure policy",
            "In place of the plugin.",
            "ops",
            (
                (
                    _rate("berth_plugin_policies_total", "plugin, policy"),
                    "{{plugin}} {{policy}}",
                ),
            ),
        ),
        Panel(
            "Bytes",
            "Between the host and served plugins.",
            "Bps",
            (
                (
                    _rate("berth_plugin_sent_bytes_total", "plugin"),
                    "to {{plugin}}",
                ),
                (
                    _rate("berth_plugin_received_bytes_total", "plugin"),
                    "from {{plugin}}",
                ),
            ),
        ),
        Panel(
            "Age of the oldest Unreserve that was not received",
            "See the alert BerthUndoOverdue.",
            "s",
            (("max by (plugin) (berth_unreserve_age_seconds{OWN})", "{{plugin}}"),),
        ),
        Panel(
            "Age of the oldest PostBind that is held",
            "See the alert BerthPostBindOverdue.",
            "s",
            (("max by (plugin) (berth_post_bind_age_seconds{OWN})", "{{plugin}}"),),
        ),
    ),
    "API server": (
        Panel(
            "Requests",
            "By answer and method.",
            "ops",
            (
                (
                    _rate("rest_client_requests_total", "code, method"),
                    "{{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            "Time of a request",
            "By verb.",
            "s",
            _quantiles("rest_client_request_duration_seconds", "verb", "{{verb}}"),
        ),
        Panel(
            "Interrupted watches",
            "Restarted, read again, or with a line that could not be read.",
            "ops",
            (
                (
                    _rate("berth_watch_interruptions_total", "resource, reason"),
                    "{{resource}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Cache",
            "Nodes, pods and assumed pods.",
            "short",
            (("max by (type) (scheduler_cache_size{OWN})", "{{type}}"),),
        ),
    ),
}


def panels() -> Iterator[dict[str, Any]]:
    """Yield the panels in Grafana's form, from left to right and top to bottom."""
    number, y = 1, 0
    for title, row in ROWS.items():
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        number, y, x = number + 1, y + 1, 0
        for panel in row:
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            yield {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "description": panel.says,
                "datasource": {"type": "prometheus", "uid": "$datasource"},
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + at),
                        "expr": expression.replace("OWN", _OWN),
                        "legendFormat": legend,
                    }
                    for at, (expression, legend) in enumerate(panel.queries)
                ],
            }
            number, x = number + 1, x + panel.width
        y += _HEIGHT


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def made() -> str:
    """Return the text of the dashboard."""
    dashboard = {
        "uid": "berth",
        "title": "berth",
        "tags": ["kubernetes", "scheduler"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("namespace", "Namespace", "label_values(berth_build_info, namespace)"),
                _variable("job", "Scheduler", 'label_values(berth_build_info{namespace="$namespace"}, job)'),
            ]
        },
        "panels": list(panels()),
    }
    return json.dumps(dashboard, indent=1) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the dashboard, or with --check say whether it differs."""
    parser = argparse.ArgumentParser(description="Make the dashboard for Grafana.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    options = parser.parse_args(argv)
    if PATH.exists() and PATH.read_text() == made():
        return 0
    print(PATH.relative_to(ROOT))
    if not options.check:
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_text(made())
    return 1 if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
