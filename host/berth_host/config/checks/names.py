"""Checks qualified names, label keys and values, extended resource names; each returns its complaints.

Source: `apimachinery/pkg/util/validation`, `pkg/apis/core/v1/helper` (IsExtendedResourceName), v1.36.
"""

from __future__ import annotations

import re
from typing import Final

from berth_host.config.errors import Finding, invalid

_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_BYTES: Final = 63
_SUBDOMAIN_BYTES: Final = 253
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com')"
)

_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name')"
)


def qualified_name_complaints(value: str) -> list[str]:
    """Return the errors in a label key or resource name, `[prefix/]name`; empty if valid."""
    if value.count("/") > 1:
        return [f"a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/'"]
    prefix, slash, name = value.rpartition("/")
    complaints = []
    if slash and not prefix:
        complaints.append("prefix part must be non-empty")
    elif slash:
        complaints += [f"prefix part {complaint}" for complaint in subdomain_complaints(prefix)]
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name.encode()) > _NAME_BYTES:
        complaints.append(f"name part must be no more than {_NAME_BYTES} bytes")
    if not _NAME.fullmatch(name):
        complaints.append(f"name part {_NAME_RULE}")
    return complaints


def label_value_complaints(value: str) -> list[str]:
    """Return the errors in a label's value."""
    complaints = []
    if len(value.encode()) > _NAME_BYTES:
        complaints.append(f"must be no more than {_NAME_BYTES} bytes")
    if not _LABEL_VALUE.fullmatch(value):
        complaints.append(f"a valid label must be an empty string or {_NAME_RULE}")
    return complaints


def check_label_name(path: str, name: str) -> list[Finding]:
    """One finding per complaint about a label key."""
    return [invalid(path, name, complaint) for complaint in qualified_name_complaints(name)]


def check_extended_resource_name(path: str, name: str) -> list[Finding]:
    """Return the findings about a resource that an extender or a plugin manages."""
    findings = check_label_name(path, name)
    if not findings and not is_extended_resource_name(name):
        cure = "write it as domain/name, such as example.com/gpu, outside kubernetes.io"
        findings.append(invalid(path, name, f"is an invalid extended resource name ({cure})"))
    return findings


def is_extended_resource_name(name: str) -> bool:
    """Return True for `domain/name` outside kubernetes.io: a resource that Kubernetes does not define."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name_complaints(f"requests.{name}")


def subdomain_complaints(value: str) -> list[str]:
    """Return the errors in an object name, by the rule for most kinds."""
    complaints = []
    if len(value.encode()) > _SUBDOMAIN_BYTES:
        complaints.append(f"must be no more than {_SUBDOMAIN_BYTES} bytes")
    if not _SUBDOMAIN.fullmatch(value):
        complaints.append(_SUBDOMAIN_RULE)
    return complaints


def label_complaints(value: str) -> list[str]:
    """Return the errors in the name of a Namespace."""
    complaints = []
    if len(value.encode()) > _NAME_BYTES:
        complaints.append(f"must be no more than {_NAME_BYTES} bytes")
    if not _LABEL.fullmatch(value):
        complaints.append(_LABEL_RULE)
    return complaints
