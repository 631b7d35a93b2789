"""The `extenders` of an older form -> those of v1. `component` and `policy` call it."""

from __future__ import annotations

from berth_sdk.duration import format_duration

from berth_host.config.source.node import Member, SourceNode
from berth_host.older_config.nodes import list_of, with_members
from berth_host.older_config.table import field_row
from berth_host.older_config.warnings import Remarks

_OLD_SWITCH = "enableHttps"
_SWITCH = "enableHTTPS"
_TIMEOUT = "httpTimeout"
_VERSION = "apiVersion"


def convert_extenders(extenders: SourceNode, remarks: Remarks) -> SourceNode:
    """Convert a list that has the shape of its form. Raises ConfigurationError for a field given twice."""
    return list_of(
        (_convert(one, f"extenders[{index}]", remarks) for index, one in enumerate(extenders.items)),
        extenders.line,
    )


def _convert(extender: SourceNode, path: str, remarks: Remarks) -> SourceNode:
    members = dict(extender.members)
    version = members.pop(_VERSION, None)  # the shapes of the forms leave it to policies
    if version is not None:
        remarks.changed(field_row("extenders[].apiVersion"), f"{path}.{_VERSION}", version.key_line)
    switch = members.pop(_OLD_SWITCH, None)
    if switch is not None:
        if _SWITCH in members:
            message = f"{_OLD_SWITCH} and {_SWITCH} are one field: remove one of them"
            raise remarks.refusal(message, path, switch.node)
        remarks.changed(field_row("extenders[].enableHttps"), f"{path}.{_OLD_SWITCH}", switch.key_line)
        members[_SWITCH] = switch
    timeout = members.get(_TIMEOUT)
    if timeout is not None and type(timeout.node.value) is int:
        text = format_duration(timeout.node.value)
        remarks.changed(
            field_row("extenders[].httpTimeout"),
            f"{path}.{_TIMEOUT}",
            timeout.key_line,
            what=f"httpTimeout {timeout.node.value}",
            more=f"it is {text}",
        )
        members[_TIMEOUT] = Member(timeout.key_line, SourceNode(text, timeout.node.line))
    return with_members(extender, members)
