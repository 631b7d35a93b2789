"""A document in an older form -> the same document in v1, with a warning for every change.

The conversion runs before the strict decoding, which then gets v1 only. A v1 document stays unchanged. The
loader calls the `Converter` that a command passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_host.config.decoding.types_v1 import GROUP, KIND
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.loading import Conversion
from berth_host.config.secrets import errors_without_secrets
from berth_host.config.source.documents import read_documents
from berth_host.config.source.node import SourceError, SourceNode
from berth_host.older_config.component import PolicySources, ReadConfigMap, convert_component
from berth_host.older_config.policy import PolicyParts, convert_policy, policy_parts
from berth_host.older_config.shapes import check_shape
from berth_host.older_config.table import COMPONENT_FORMS, Form
from berth_host.older_config.warnings import Remarks

_FORMS: Final[Mapping[str, Form]] = {
    f"{GROUP}/{form}": form for form in COMPONENT_FORMS if form is not Form.FLAT
}
_POLICY_KIND: Final = "Policy"
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
    no API server.
    """

    read_config_map: ReadConfigMap | None = None

    def is_older(self, root: SourceNode) -> bool:
        """Return True for a document in one of the older forms."""
        return form_of(root) is not None

    def convert(self, root: SourceNode, *, is_yaml: bool, source: str) -> Conversion:
        """Convert a document. Raises ConfigurationError, as `convert` does."""
        return convert(root, is_yaml=is_yaml, source=source, read_config_map=self.read_config_map)


def convert(
    root: SourceNode, *, is_yaml: bool, source: str, read_config_map: ReadConfigMap | None = None
) -> Conversion:
    """Convert a document. `read_config_map`: reads a policy's ConfigMap; None: there is no API server.

    Raises ConfigurationError for fields that the document's form does not have or v1 cannot express.
    """
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
        err.warnings = tuple(remarks.texts)
        raise
    return Conversion(converted, tuple(remarks.texts), form)


def _parse_policy(text: str, path: str, remarks: Remarks) -> PolicyParts:
    """Read the text of a policy that a v1alpha1 configuration names.

    `path`: the place of the text, for messages. `remarks`: gets the policy's warnings.
    """
    with errors_without_secrets(text):
        return _policy_of(text, path, remarks)


def _policy_of(text: str, path: str, remarks: Remarks) -> PolicyParts:
    own = Remarks(Form.POLICY, path)
    try:
        documents = read_documents(text, lambda root: form_of(root) is not None)
    except SourceError as err:
        raise ConfigurationError("decode", [Finding(err.message, line=err.line)], source=path) from err
    root = documents.scheduler
    if root is None or form_of(root) is not Form.POLICY:
        raise ConfigurationError("decode", [Finding("this is no Policy")], source=path)
    check_shape(root, Form.POLICY, is_yaml=documents.is_yaml, source=path)
    parts = policy_parts(root, own)
    remarks.texts.extend(f"{path}: {text}" for text in own.texts)
    return parts


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
