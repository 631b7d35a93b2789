"""A BerthConfiguration document -> BerthConfiguration, strictly. Called by the loader.

Wrong shapes are errors of kind "decode", values that make no sense of kind "validation"; both name file,
line, field path and the nearest valid name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from berth_host.config.berth.checks import check_berth
from berth_host.config.berth.configuration import (
    API_VERSION,
    KIND,
    BerthConfiguration,
    BerthPlugin,
    HandleListener,
    PluginScope,
    PointSettings,
    TlsFiles,
    Transport,
    default_point_settings,
)
from berth_host.config.berth.points import DEFAULT_CYCLE_BUDGET_MS, FailurePolicy, PointPolicy
from berth_host.config.berth.types_v1alpha1 import (
    BerthConfigurationV1Alpha1,
    PluginV1Alpha1,
    PointsV1Alpha1,
    PointV1Alpha1,
    ScopeV1Alpha1,
    TlsV1Alpha1,
)
from berth_host.config.decoding.core_v1 import LabelSelectorV1
from berth_host.config.decoding.go_types import (
    Context,
    decode_value,
    encode_struct,
    json_fields,
    struct_of,
)
from berth_host.config.errors import ConfigurationError, Finding, nearest
from berth_host.config.source.node import Json, SourceNode

_SECOND_NS = 1_000_000_000


def decode_berth(root: SourceNode, *, source: str) -> BerthConfiguration:
    """Decode and check one document. Raises ConfigurationError with every error in it."""
    findings = _check_version_and_kind(root)
    context = Context(is_yaml=True, findings=findings)
    if not findings:
        decoded = decode_value(struct_of(BerthConfigurationV1Alpha1), root, "", context)
    if findings:
        raise ConfigurationError("decode", sorted(findings, key=lambda f: f.line or 0), source=source)
    document: BerthConfigurationV1Alpha1 = decoded
    findings = [finding.at_line(root.line_of(finding.field)) for finding in check_berth(document)]
    if findings:
        raise ConfigurationError("validation", findings, source=source)
    return _configuration(document)


def _check_version_and_kind(root: SourceNode) -> list[Finding]:
    findings = []
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        member = root.members.get(name)
        given = member.node.value if member is not None else None
        if given != wanted:
            shown = f'"{given}"' if isinstance(given, str) else "no text"
            suggestion = nearest(str(given), (wanted,)) if given is not None else None
            message = f"expected {wanted}, got {shown}"
            line = root.line_of(name)
            findings.append(Finding(message, field=name, line=line, suggestion=suggestion))
    return findings


def _given_points(points: PointsV1Alpha1) -> Iterator[tuple[str, PointV1Alpha1]]:
    """The points that a file names, spelled as there."""
    for name, known in json_fields(PointsV1Alpha1).items():
        point = getattr(points, known.attribute)
        if point is not None:
            yield name, point


def _configuration(document: BerthConfigurationV1Alpha1) -> BerthConfiguration:
    budget_ns = document.cycle_budget
    return BerthConfiguration(
        socket_folder=document.socket_folder,
        plugins=tuple(_plugin(plugin) for plugin in document.plugins or ()),
        handle=_handle(document),
        cycle_budget_s=DEFAULT_CYCLE_BUDGET_MS / 1000 if budget_ns is None else budget_ns / _SECOND_NS,
    )


def _handle(document: BerthConfigurationV1Alpha1) -> HandleListener | None:
    given = document.handle
    if given is None or given.tls is None:  # the checks ask for it
        return None
    return HandleListener(
        bind_address=given.bind_address,
        advertise_address=given.advertise_address,
        tls=_tls(given.tls),
    )


def _tls(given: TlsV1Alpha1) -> TlsFiles:
    return TlsFiles(
        ca_file=given.ca_file,
        cert_file=given.cert_file,
        key_file=given.key_file,
        server_name=given.server_name,
    )


def _plugin(given: PluginV1Alpha1) -> BerthPlugin:
    return BerthPlugin(
        name=given.name,
        endpoint=given.endpoint,
        command=given.command,
        in_process=given.in_process,
        required=given.required is not False,
        scope=_scope(given.scope),
        points=_points(given.points),
        points_given=_choices(given.points),
        tls=None if given.tls is None else _tls(given.tls),
        insecure=given.insecure,
        credential_file=given.credential_file,
        allowed_uids=given.allowed_uids or (),
        max_concurrency=given.max_concurrency,
        transport=Transport(given.transport or Transport.FRAMED),
        may_end_waits_of=None if given.handle.permit is None else frozenset(given.handle.permit),
    )


def _points(given: PointsV1Alpha1) -> dict[str, PointSettings]:
    settings = default_point_settings()
    for name, point in _given_points(given):
        if point.deadline is not None:
            settings[name] = replace(settings[name], deadline_s=point.deadline / _SECOND_NS)
        if point.policy is not None:
            settings[name] = replace(settings[name], policy=FailurePolicy(point.policy))
    return settings


def _choices(given: PointsV1Alpha1) -> dict[str, PointPolicy]:
    return {
        name: PointPolicy(
            None if point.deadline is None else point.deadline / _SECOND_NS,
            None if point.policy is None else FailurePolicy(point.policy),
        )
        for name, point in _given_points(given)
    }


def _scope(given: ScopeV1Alpha1) -> PluginScope:
    return PluginScope(
        namespace_selector=_selector(given.namespace_selector),
        pod_selector=_selector(given.pod_selector),
        resources=given.resources or (),
    )


def _selector(given: LabelSelectorV1 | None) -> dict[str, Json] | None:
    return None if given is None else encode_struct(given)
