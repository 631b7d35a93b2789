"""A loaded configuration -> the text of an equivalent file, which can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import yaml
from berth_sdk.yaml.scalars import resolve_word

from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.rendering import completed_document
from berth_host.config.source.node import Json
from berth_host.log.secrets import masked_object

_OTHER_BREAKS: Final = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes every word that kube-scheduler's YAML reader reads as no string (`y`, `1e3`)."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # A reader folds the other line breaks of YAML to a space unless they are escaped.
    is_word = resolve_word(text) == text and text != "<<" and not _OTHER_BREAKS & set(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_word else '"')


_Dumper.add_representer(str, _represent_text)


def document_text(loaded: LoadedConfiguration) -> str:
    """Return the first document in v1, as YAML: the given fields, converted, without defaults or secrets."""
    return _dumped(masked_object(loaded.document))


def file_text(loaded: LoadedConfiguration) -> str:
    """Return the whole file: the first document, then berth's own document, if there is one."""
    own = loaded.berth_document
    return documents_text(masked_object(loaded.document), None if own is None else masked_object(own))


def completed_text(loaded: LoadedConfiguration) -> str:
    """Return the whole file with all defaults, then berth's own document, if there is one."""
    return documents_text(completed_document(loaded), loaded.berth_document)


def documents_text(scheduler: Mapping[str, Json], berth: Mapping[str, Json] | None) -> str:
    """Return both documents as one file, secrets included. `berth` None: there is only the first."""
    text = _dumped(scheduler)
    return text if berth is None else f"{text}---\n{_dumped(berth)}"


def _dumped(document: Mapping[str, Json]) -> str:
    text: str = yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text
