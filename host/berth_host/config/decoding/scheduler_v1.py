"""The first document -> values of kubescheduler.config.k8s.io/v1, strictly. Called by the loader.

Version and kind are checked first; then the whole document is decoded, and then every plugin's arguments.
Arguments of default plugins are decoded into their types, others stay as they are. Older versions are
converted before (`older_config`).
Source: apimachinery `runtime/serializer/json/json.go`, `kube-scheduler/config/v1/types.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_host.config.decoding.args_v1 import ARGS_TYPES, PluginArgs
from berth_host.config.decoding.go_types import Context, decode_value, encode_struct, struct_of
from berth_host.config.decoding.types_v1 import (
    API_VERSION,
    GROUP,
    KIND,
    KubeSchedulerConfiguration,
    PluginConfigV1,
)
from berth_host.config.errors import ConfigurationError, Finding, nearest
from berth_host.config.source.node import Json, SourceNode

_KINDS: Final = (KIND, *ARGS_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """One entry of `pluginConfig`. `typed` for plugins with an argument type, else `opaque` as given."""

    name: str
    typed: PluginArgs | None = None
    opaque: Json = None

    @property
    def args(self) -> Json:
        """The arguments as JSON; None when there are none."""
        return self.opaque if self.typed is None else encode_struct(self.typed)

    def with_typed(self, args: PluginArgs) -> PluginConfig:
        """Return the entry with other arguments."""
        return replace(self, typed=args)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedScheduler:
    """A decoded document; `plugin_config` is parallel to `config.profiles`."""

    config: KubeSchedulerConfiguration
    plugin_config: tuple[tuple[PluginConfig, ...], ...]


def decode_scheduler(
    root: SourceNode, *, is_yaml: bool, source: str, absent_fields: frozenset[str] = frozenset()
) -> DecodedScheduler:
    """Decode a document. Raises ConfigurationError of kind "decode" with every error in it.

    `absent_fields`: the ends of the paths of fields that the emulated version does not have, as
    `plugins.podGroupPostFilter`.
    """
    findings = _check_version_and_kind(root)
    if findings:
        raise ConfigurationError("decode", findings, source=source)
    context = Context(is_yaml=is_yaml, absent_fields=absent_fields)
    config: KubeSchedulerConfiguration = decode_value(
        struct_of(KubeSchedulerConfiguration), root, "", context
    )
    plugin_config = tuple(
        tuple(
            _decode_args(entry, f"profiles[{i}].pluginConfig[{j}].args", context)
            for j, entry in enumerate(profile.plugin_config or ())
        )
        for i, profile in enumerate(config.profiles or ())
    )
    if context.findings:
        raise ConfigurationError("decode", _in_file_order(context.findings), source=source)
    return DecodedScheduler(config=config, plugin_config=plugin_config)


def _in_file_order(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.line or 0)


def _check_version_and_kind(root: SourceNode) -> list[Finding]:
    meta = _TypeMeta.of(root, "")
    if meta.findings:
        return meta.findings
    if not meta.kind:
        return [Finding(f"Object 'Kind' is missing: add \"kind: {KIND}\"", line=root.line)]
    if not meta.version:
        return [Finding(f"Object 'apiVersion' is missing: add \"apiVersion: {API_VERSION}\"", line=root.line)]
    if meta.api_version != API_VERSION or meta.kind not in _KINDS:
        return [meta.not_registered(root, KIND)]
    if meta.kind != KIND:
        message = f"couldn't decode as {KIND}, got {GROUP}/v1, Kind={meta.kind}"
        return [Finding(message, field="kind", line=root.line_of("kind"))]
    return []


@dataclass(frozen=True, slots=True)
class _TypeMeta:
    """`apiVersion` and `kind` of an object, read before its other fields."""

    api_version: str
    kind: str
    findings: list[Finding]

    @classmethod
    def of(cls, node: SourceNode, path: str) -> _TypeMeta:
        if node.value is not None and not isinstance(node.value, Mapping):
            wrong = Finding("couldn't get version/kind: expected an object", field=path, line=node.line)
            return cls("", "", [wrong])
        texts, findings = {"apiVersion": "", "kind": ""}, []
        for name in texts:
            member = node.members.get(name)
            if member is not None and isinstance(member.node.value, str):
                texts[name] = member.node.value
            elif member is not None and member.node.value is not None:
                findings.append(Finding(f"{name} must be a string", field=path, line=member.key_line))
        if texts["apiVersion"].count("/") > 1:
            message = f"unexpected GroupVersion string: {texts['apiVersion']}"
            findings.append(Finding(message, field=path, line=node.line_of("apiVersion")))
        return cls(texts["apiVersion"], texts["kind"], findings)

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def with_defaults(self, kind: str) -> _TypeMeta:
        """Return the version and kind to decode with; an absent version or kind gets the default."""
        is_absent = self.api_version in ("", f"{GROUP}/")
        api_version = API_VERSION if is_absent else self.api_version
        return replace(self, api_version=api_version, kind=self.kind or kind)

    def not_registered(self, node: SourceNode, wanted_kind: str) -> Finding:
        """Return the error for an unknown pair of version and kind, with the cure."""
        message = f'no kind "{self.kind}" is registered for version "{self.api_version}"'
        if self.api_version == API_VERSION:
            suggestion = nearest(self.kind, (wanted_kind,))
            return Finding(message, line=node.line_of("kind"), suggestion=suggestion)
        message += f": this release reads {API_VERSION}, and older versions where they are converted"
        return Finding(message, line=node.line_of("apiVersion"))


def _decode_args(entry: PluginConfigV1, path: str, context: Context) -> PluginConfig:
    kind = f"{entry.name}Args"
    if kind not in ARGS_TYPES:
        return PluginConfig(name=entry.name, opaque=entry.args.to_json() if entry.args else None)
    node = entry.args or SourceNode(None, 0)
    meta = _TypeMeta.of(node, path).with_defaults(kind)
    findings = meta.findings or _check_args_type(meta, kind, node, path)
    if findings:
        context.findings += findings
        return PluginConfig(name=entry.name)
    typed = decode_value(struct_of(ARGS_TYPES[kind]), node, path, context)
    return PluginConfig(name=entry.name, typed=typed)


def _check_args_type(meta: _TypeMeta, kind: str, node: SourceNode, path: str) -> list[Finding]:
    if meta.api_version != API_VERSION or meta.kind not in _KINDS:
        return [replace(meta.not_registered(node, kind), field=path)]
    if meta.kind == kind:
        return []
    message = f"args for plugin {kind.removesuffix('Args')} were not of type {kind}, got {meta.kind}"
    return [Finding(message, field=path, line=node.line_of("kind"))]
