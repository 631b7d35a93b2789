"""A document in an older form -> the same document in v1, with a warning for every change.

The conversion runs before the strict decoding, which then gets v1 only. A v1 document stays unchanged. The
loader calls the `Converter` that a command passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_host.config.decoding.types_v1 import GROUP, KIND
from berth_host.config.errors import ConfigurationError, Finding, errors_without_secrets
from berth_host.config.loading import Conversion
from berth_host.config.source.documents import read_documents
from berth_host.config.source.node import SourceError, SourceNode
from berth_host.log.hidden import hide
from berth_host.log.secrets import secrets_of
from berth_host.older_config.component import POLICY_KEY, PolicySources, ReadConfigMap, convert_component
from berth_host.older_config.nodes import field_of, text_of
from berth_host.older_config.policy import PolicyParts, convert_policy, policy_parts
from berth_host.older_config.shapes import check_shape
from berth_host.older_config.table import COMPONENT_FORMS, Form
from berth_host.older_config.warnings import Remark, Remarks

_FORMS: Final[Mapping[str, Form]] = {
    f"{GROUP}/{form}": form for form in COMPONENT_FORMS if form is not Form.FLAT
}
_POLICY_KIND: Final = "Policy"
_CONFIG_MAP_KIND: Final = "ConfigMap"
_POLICY_VERSIONS: Final = ("", "v1", f"{GROUP}/v1")
_POLICY_FIELDS: Final = frozenset(
    {
        *("predicates", "priorities", "extenders"),
        *("hardPodAffinitySymmetricWeight", "alwaysCheckAllPredicates"),
    }
)
_FLAT_FIELDS: Final = frozenset({"plugins", "pluginConfig"})
_ENTRY_FIELDS: Final = frozenset({"name", "args"})


@dataclass(frozen=True, slots=True)
class Converter:
    """The conversion, as the loader calls it. `read_config_map`: reads a policy's ConfigMap; None: there is
    no API server. `told`: gets every remark; None: the warnings are enough.
    """

    read_config_map: ReadConfigMap | None = None
    told: list[Remark] | None = None

    def is_older(self, root: SourceNode) -> bool:
        """Return True for a document in one of the older forms, and for the ConfigMap of a policy."""
        return form_of(root) is not None or is_config_map(root)

    def convert(self, root: SourceNode, *, is_yaml: bool, source: str) -> Conversion:
        """Convert a document. Raises ConfigurationError, as `convert` does."""
        return convert(
            root, is_yaml=is_yaml, source=source, read_config_map=self.read_config_map, told=self.told
        )


def convert(
    root: SourceNode,
    *,
    is_yaml: bool,
    source: str,
    read_config_map: ReadConfigMap | None = None,
    told: list[Remark] | None = None,
) -> Conversion:
    """Convert a document. `read_config_map`: reads a policy's ConfigMap; None: there is no API server.

    `told`: gets every remark. Raises ConfigurationError for fields that the document's form does not have or
    v1 cannot express.
    """
    if is_config_map(root):
        return _convert_config_map(root, source, told)
    if _is_entry(root):
        remarks = Remarks(Form.FLAT, source)
        message = (
            "this is one entry of pluginConfig, not a configuration: list it under profiles[].pluginConfig"
        )
        raise remarks.refusal(message, "", root)
    form = form_of(root)
    if form is None:
        return Conversion(root)
    remarks = Remarks(form, source)
    try:
        check_shape(root, form, is_yaml=is_yaml, source=source)
        if form is Form.POLICY:
            converted = convert_policy(root, remarks)
        else:
            converted = convert_component(root, remarks, PolicySources(_parse_policy, read_config_map))
    except ConfigurationError as err:
        err.warnings = remarks.texts
        raise
    if told is not None:
        told += remarks.all
    return Conversion(converted, remarks.texts, form)


def is_config_map(root: SourceNode) -> bool:
    """Return True for a manifest of kind ConfigMap, which kube-scheduler up to 1.22 read a policy from."""
    return (_meta(root, "apiVersion"), _meta(root, "kind")) == ("v1", _CONFIG_MAP_KIND)


def _refuse_other_config(data: SourceNode, name: str, names: Sequence[str], source: str) -> None:
    """Refuse a ConfigMap that holds a KubeSchedulerConfiguration: a file of its own, not a policy."""
    for key, member in data.members.items():
        text = member.node.value
        if not isinstance(text, str) or "kind: KubeSchedulerConfiguration" not in text.replace('"', ""):
            continue
        namespace, own = names or ("", "")
        where = f"-n {namespace} " if namespace else ""
        path = key.replace(".", "\\.")
        message = (
            f"{name} holds a KubeSchedulerConfiguration at the key {key}, and is none itself: write it to a "
            f"file (kubectl {where}get configmap {own or 'NAME'} -o 'jsonpath={{.data.{path}}}' > {key}) "
            "and name that file"
        )
        raise ConfigurationError("decode", [Finding(message, field="data", line=data.line)], source=source)


def _convert_config_map(root: SourceNode, source: str, told: list[Remark] | None) -> Conversion:
    """Convert the policy in a ConfigMap. Places in it count from the first line of the policy."""
    metadata, data = field_of(root, "metadata"), field_of(root, "data")
    names = [text_of(metadata, name) for name in ("namespace", "name")] if metadata is not None else []
    name = f"ConfigMap {'/'.join(filter(None, names))}".strip()
    policy = None if data is None else field_of(data, POLICY_KEY)
    if policy is None or not isinstance(policy.value, str):
        if data is not None:
            _refuse_other_config(data, name, names, source)
        found = ", ".join(data.members) if data is not None and data.members else "nothing"
        message = (
            f"{name} has no key {POLICY_KEY} (it has {found}): put the policy there; to read another key, "
            "give its text (kubectl get configmap NAME -o 'jsonpath={.data.KEY}')"
        )
        line = root.line_of("data")
        raise ConfigurationError("decode", [Finding(message, field="data", line=line)], source=source)
    place = f"{name}, {POLICY_KEY}"
    path, text, own = f"{source}: {place}", policy.value, list[Remark]()
    with errors_without_secrets(text):
        document, is_yaml = _policy_document(text, path)
        converted = convert(document, is_yaml=is_yaml, source=path, told=own)
    placed = [replace(remark, source=place) for remark in own]
    if told is not None:
        told += placed
    return replace(converted, warnings=tuple(map(str, placed)))


def _parse_policy(text: str, path: str, remarks: Remarks) -> PolicyParts:
    """Read the text of a policy that a v1alpha1 configuration names.

    `path`: the place of the text, for messages. `remarks`: gets the policy's warnings.
    """
    with errors_without_secrets(text):
        return _policy_of(text, path, remarks)


def _policy_of(text: str, path: str, remarks: Remarks) -> PolicyParts:
    own = Remarks(Form.POLICY, path)
    root, is_yaml = _policy_document(text, path)
    check_shape(root, Form.POLICY, is_yaml=is_yaml, source=path)
    parts = policy_parts(root, own)
    remarks.all += [replace(remark, source=path) for remark in own.all]
    return parts


def _policy_document(text: str, path: str) -> tuple[SourceNode, bool]:
    """Return the policy in a text, and True if the text is YAML. Raises ConfigurationError if it has none."""
    try:
        documents = read_documents(text, lambda root: form_of(root) is not None)
    except SourceError as err:
        raise ConfigurationError("decode", [Finding(err.message, line=err.line)], source=path) from err
    root = documents.scheduler
    if root is None or form_of(root) is not Form.POLICY:
        raise ConfigurationError("decode", [Finding("this is no Policy")], source=path)
    hide(secrets_of(root.to_json()))
    return root, documents.is_yaml


def form_of(root: SourceNode) -> Form | None:
    """Return the older form of a document; None if the document is v1 or unknown."""
    version, kind = (_meta(root, name) for name in ("apiVersion", "kind"))
    if version is None or kind is None:
        return None
    if kind == _POLICY_KIND:
        return Form.POLICY if version in _POLICY_VERSIONS else None
    if kind == KIND:
        return _FORMS.get(version)
    names = frozenset(root.members)
    if kind or version or not names:
        return None
    if names & {"predicates", "priorities"} or names <= _POLICY_FIELDS:
        return Form.POLICY
    return Form.FLAT if names & _FLAT_FIELDS else None


def _meta(root: SourceNode, name: str) -> str | None:
    """Return the text of `apiVersion` or `kind`; empty if the field is absent, None if it is not a string."""
    member = root.members.get(name)
    if member is None or member.node.value is None:
        return ""
    return member.node.value if isinstance(member.node.value, str) else None


def _is_entry(root: SourceNode) -> bool:
    return frozenset(root.members) == _ENTRY_FIELDS
