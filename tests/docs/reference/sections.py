"""The list of all made parts, and their places in pages.

A part is between two comments, `<!-- made: NAME -->` and `<!-- end: NAME -->`; the page around it has the
text that the code does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from docs.reference import (
    chart,
    commands,
    config,
    contract,
    conversions,
    faults,
    floors,
    metrics,
    packages,
    points,
    sdk,
)

SECTIONS: Final[Mapping[str, Callable[[], str]]] = {
    "host-floors": floors.picture,
    "host-packages": packages.picture,
    "points": points.points,
    "calls": points.calls,
    "protocols": points.protocols,
    "attributes": points.attributes,
    "status-codes": points.codes_of_status,
    "enumerations": points.enumerations,
    "answers": points.answers,
    "needs": points.needs,
    "event-words": points.event_words,
    "sdk-data": sdk.data,
    "sdk-verdicts": sdk.verdicts,
    "sdk-state": sdk.state,
    "sdk-handle": sdk.the_handle,
    "sdk-pieces": sdk.pieces,
    "sdk-sort-keys": sdk.keys,
    "sdk-testing": sdk.for_tests,
    "services": contract.services,
    "contract-calls": contract.calls,
    "grpc-codes": contract.grpc_codes,
    "messages": contract.messages,
    "query-services": contract.query_services,
    "query-messages": contract.query_messages,
    "point-settings": config.points,
    "limits": config.limits,
    "feature-gates": config.feature_gates,
    "differences": config.differences,
    "emulated-events": config.emulated_events,
    "conversions": conversions.conversions,
    "other-plugins": conversions.other_plugins,
    "default-plugins": config.default_plugins,
    "chart-values": chart.values,
    "fault-tests": faults.fault_tests,
    "kube-families": metrics.kube_families,
    "berth-families": metrics.berth_families,
    "resource-families": metrics.resource_families,
    "berth-commands": commands.berth_commands,
    "kubectl-commands": commands.kubectl_commands,
    "sdk-commands": commands.sdk_commands,
}

_SECTION: Final = re.compile(
    r"(?P<head><!-- made: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(?P<tail><!-- end: (?P=name) -->)", re.DOTALL
)


def names_in(text: str) -> list[str]:
    """Return the names of the parts that a page contains."""
    return [matched["name"] for matched in _SECTION.finditer(text)]


def filled(text: str) -> str:
    """Return the page with every part regenerated. Raises KeyError for a part that no section makes."""
    return _SECTION.sub(
        lambda matched: f"{matched['head']}\n{SECTIONS[matched['name']]()}\n\n{matched['tail']}", text
    )
