"""The text of an older configuration -> the file for berth, and a remark about each change.

`migrate` calls it. The conversion to v1 is that of `older_config`. Then the plugins that berth lacks are
taken out, and the result is decoded, validated and built as `check-config` does. A v1 file in which nothing
changes is returned as it is, so the next migration returns what one migration wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from berth_host.cli.configuration import load_text
from berth_host.cli.rendering.configuration import documents_text
from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.berth.decoding import decode_berth
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.decoding.types_v1 import API_VERSION, GROUP, KIND
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME, EXTENSION_POINTS
from berth_host.config.errors import ConfigurationError, Finding, errors_without_secrets
from berth_host.config.loading import load_berth_configuration
from berth_host.config.source.documents import Documents, read_documents
from berth_host.config.source.node import Json, SourceError, SourceNode
from berth_host.log.hidden import hide
from berth_host.log.secrets import masked_object, secrets_of, without_secrets
from berth_host.older_config.conversion import Converter
from berth_host.older_config.leaving_out import leave_out
from berth_host.older_config.table import COMPONENT_FORMS, Form
from berth_host.older_config.warnings import Remark

_NO_BERTH: Final = (
    "the file has no BerthConfiguration (apiVersion: config.berth.io/v1alpha1): name another file"
)
_SERVED: Final = frozenset(EXTENSION_POINTS) - {"queueSort"}
"""The points that a served plugin may have, before it is attached."""
_CURE: Final = "; install or mend it, or name its points: --plugin {}=POINT,POINT".format


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFile:
    """The text of a BerthConfiguration in a file of its own, and the file's name."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The result. `text`: of the whole file, secrets included. `shown`: the same with its secrets masked.

    `form`: the older form; None for v1. `remarks`: every change, in the order of the file. `notes`: the
    warnings of check-config.
    """

    source: str
    form: str | None
    text: str
    shown: str
    remarks: tuple[Remark, ...]
    notes: tuple[str, ...]
    has_berth_configuration: bool

    @property
    def holds_secrets(self) -> bool:
        """True if the file holds keys, passwords or tokens."""
        return self.text != self.shown


def migrate(
    text: str,
    source: str,
    registered: Mapping[str, frozenset[str]],
    *,
    feature_gates: Mapping[str, bool],
    emulated_version: str = "",
    given: Mapping[str, frozenset[str]],
    berth_file: OtherFile | None = None,
) -> Migration:
    """Return the migrated file. `source`: the name of the text in errors.

    Args:
        registered: plugins that are installed here, with the points that they implement.
        feature_gates: gates that are set, by name.
        emulated_version: as for `load_configuration`.
        given: plugins that the command line names, with their points.
        berth_file: a BerthConfiguration that is not in the text; None: there is none.

    Raises ConfigurationError with every error in the text; the result of an older text is checked as v1.
    """
    with errors_without_secrets(text):
        documents = _documents(text, source)
    other = None if berth_file is None else _berth_document(berth_file)
    own = None if documents.berth is None else documents.berth.to_json()
    if other is not None and other.to_json() == own:
        other = None
    berth = None if other is None or berth_file is None else decode_berth(other, source=berth_file.source)
    points = _points(text, source, berth) | dict(registered) | dict(given)
    told: list[Remark] = []
    left: list[Remark] = []

    def amended(root: SourceNode) -> SourceNode:
        kept, remarks = leave_out(root, points)
        left.extend(remarks)
        return kept

    loaded = load_text(
        text,
        source,
        registered,
        feature_gates=feature_gates,
        emulated_version=emulated_version,
        given=given,
        cure=_CURE,
        older=lambda: Converter(told=told),
        berth=berth,
        amend=amended,
    )
    is_same = loaded.converted_from is None and not left and other is None
    written, shown = _texts(text if is_same else None, loaded, _object(other) or loaded.berth_document)
    if not is_same:
        # What is written is read once more: nothing is written that the scheduler would refuse.
        load_text(
            written,
            f"{source}, migrated",
            registered,
            feature_gates=feature_gates,
            emulated_version=emulated_version,
            given=given,
            convert_older=False,
        )
    before = {str(remark) for remark in told}
    return Migration(
        source=source,
        form=loaded.converted_from,
        text=written,
        shown=shown,
        remarks=tuple(sorted((*told, *left), key=lambda remark: (remark.source, remark.line))),
        notes=tuple(note for note in loaded.warnings if not any(note.endswith(one) for one in before)),
        has_berth_configuration=other is not None or loaded.berth_document is not None,
    )


def _texts(
    given: str | None, loaded: LoadedConfiguration, berth: Mapping[str, Json] | None
) -> tuple[str, str]:
    """Return the file, and the file with its secrets masked. `given`: the file's text, if nothing changed."""
    whole = documents_text(loaded.document, berth)
    shown = documents_text(masked_object(loaded.document), None if berth is None else masked_object(berth))
    if given is None:
        return whole, shown
    # A comment may hold a secret as well.
    is_plain = whole == shown and without_secrets(given, given) == given
    return given, given if is_plain else shown


def _documents(text: str, source: str) -> Documents:
    """Return the documents of a text.

    Raises ConfigurationError for a text that cannot be read, and for a first document of a kind that is not
    migrated.
    """
    forms = Converter()
    try:
        documents = read_documents(text, lambda root: not _is_v1(root) and forms.is_older(root))
    except SourceError as err:
        finding = Finding(err.message, line=err.line)
        raise ConfigurationError("decode", [finding], source=source) from err
    root = documents.scheduler
    if root is None:
        message = "this is a BerthConfiguration, which needs no migration: give it with --berth-config"
        raise ConfigurationError("decode", [Finding(message, line=1)], source=source)
    if not _is_v1(root) and not forms.is_older(root):
        raise ConfigurationError("decode", [_unknown(root)], source=source)
    return documents


def _is_v1(root: SourceNode) -> bool:
    return (_meta(root, "apiVersion"), _meta(root, "kind")) == (API_VERSION, KIND)


def _meta(root: SourceNode, name: str) -> object:
    member = root.members.get(name)
    return None if member is None else member.node.value


def _unknown(root: SourceNode) -> Finding:
    """Return the error about a document that is none of the known forms."""
    version, kind = _meta(root, "apiVersion"), _meta(root, "kind")
    forms = ", ".join(sorted(COMPONENT_FORMS - {Form.FLAT}))
    known = f"berth migrate reads {KIND} ({GROUP}, {forms} and v1), Policy, and the ConfigMap of a Policy"
    if not root.members:
        return Finding(f"this is no object with apiVersion and kind: {known}", line=root.line)
    if kind == KIND:
        line = root.line_of("apiVersion")
        return Finding(f'{KIND} has no version "{version or ""}": {known}', field="apiVersion", line=line)
    if not kind:
        return Finding(f"the document has no kind: {known}", line=root.line)
    return Finding(
        f"kind {kind} ({version}) is not migrated: {known}", field="kind", line=root.line_of("kind")
    )


def _berth_document(file: OtherFile) -> SourceNode:
    """Return the BerthConfiguration of a file. Raises ConfigurationError if it has none."""
    with errors_without_secrets(file.text):
        try:
            documents = read_documents(file.text)
            if documents.berth_error is not None:
                raise documents.berth_error
        except SourceError as err:
            finding = Finding(err.message, line=err.line)
            raise ConfigurationError("decode", [finding], source=file.source) from err
        if documents.berth is None:
            raise ConfigurationError("decode", [Finding(_NO_BERTH)], source=file.source)
        hide(secrets_of(documents.berth.to_json()))
        decode_berth(documents.berth, source=file.source)
        return documents.berth


def _points(text: str, source: str, other: BerthConfiguration | None) -> dict[str, frozenset[str]]:
    """Return the default plugins and those of a BerthConfiguration, with the points that each may have."""
    return {name: plugin.points for name, plugin in DEFAULT_PLUGINS_BY_NAME.items()} | dict.fromkeys(
        _placed(text, source, other), _SERVED
    )


def _placed(text: str, source: str, other: BerthConfiguration | None) -> Iterator[str]:
    """Yield the plugins of the BerthConfiguration."""
    try:
        berth = other or load_berth_configuration(text, source=source)
    except ConfigurationError:
        return  # the loader reports the errors of both documents
    yield from (plugin.name for plugin in berth.plugins)


def _object(root: SourceNode | None) -> dict[str, Json] | None:
    shown = None if root is None else root.to_json()
    return shown if isinstance(shown, dict) else None
