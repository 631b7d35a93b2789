"""The API server's own sentences: a problem -> the error, in a real server's words.

Raised by the embedded server. Users know these texts from kubectl, and kube-scheduler puts them into the
conditions of pods. An InvalidError keeps berth's own words too, in `problems`: they name the cure.
Source: apimachinery `api/errors/errors.go`, `util/validation/field/errors.go`; apiserver `registry/rest`,
`storage/errors.go`; `pkg/registry/core/pod/storage/storage.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.kube_object import ObjectRef

from berth_host.cluster.memory.kinds import Kind
from berth_host.errors.cluster import (
    ConflictError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def not_found(kind: Kind, ref: ObjectRef) -> NotFoundError:
    """No such object."""
    return NotFoundError(kind.resource, ref.key, server_message=f'{kind.qualified} "{ref.name}" not found')


def already_exists(kind: Kind, key: str, name: str) -> ConflictError:
    """The name is taken."""
    text = "already exists"
    return ConflictError(kind.resource, key, text, server_message=f'{kind.qualified} "{name}" {text}')


def modified(kind: Kind, ref: ObjectRef, expected: str) -> ConflictError:
    """The write was made of an older version."""
    text = f"has changed: it is at version {ref.resource_version}, not {expected}"
    return _cannot_be_fulfilled(kind, kind.qualified, ref, text, _MODIFIED)


def other_object(kind: Kind, found: ObjectRef, wanted_uid: str) -> ConflictError:
    """There is another object of that name now."""
    text = f"is another object now: uid {found.uid}, not {wanted_uid}"
    says = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{kind.plural}/{found.key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted_uid}, "
        f"UID in object meta: {found.uid}"
    )
    return _cannot_be_fulfilled(kind, kind.qualified, found, text, says)


def other_object_to_delete(kind: Kind, found: ObjectRef, wanted_uid: str) -> ConflictError:
    """As `other_object`, in the words of a deletion."""
    text = f"is another object now: uid {found.uid}, not {wanted_uid}"
    says = (
        f"the UID in the precondition ({wanted_uid}) does not match the UID in record ({found.uid}). "
        "The object might have been deleted and then recreated"
    )
    return _cannot_be_fulfilled(kind, kind.qualified_kind, found, text, says)


def cannot_bind(kind: Kind, ref: ObjectRef, text: str) -> ConflictError:
    """The pod cannot be put on a node. `text`: the pod's state, without its name."""
    return _cannot_be_fulfilled(kind, "pods/binding", ref, text, f"pod {ref.name} {text}")


def forbidden(kind: Kind, key: str, name: str, reason: str) -> ForbiddenError:
    """An admission plugin refuses the object."""
    says = f'{kind.qualified} "{name}" is forbidden: {reason}'
    return ForbiddenError(kind.resource, key, reason, server_message=says)


def contradictory(kind: Kind, key: str, name: str, causes: Sequence[str]) -> ForbiddenError:
    """The object is refused for what admission plugins added to it. The object as it was written is good."""
    text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    says = f'{kind.qualified_kind} "{name}" is invalid: {text}'
    return ForbiddenError(kind.resource, key, text, server_message=says)


def invalid(kind: Kind, key: str, name: str, problems: Sequence[FieldProblem]) -> InvalidError:
    """The object is refused for its content; every problem is named."""
    causes = [_cause(problem) for problem in problems]
    text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    says = f'{kind.qualified_kind} "{name}" is invalid: {text}'
    return InvalidError(kind.resource, key, problems, server_message=says)


def _cause(problem: FieldProblem) -> str:
    """A problem as the cause of one field: `spec.x: Required value`, `spec.x: Invalid value: ...`."""
    if problem.problem == "is required":
        return f"{problem.path}: Required value"
    if not problem.path:
        return problem.problem
    return f"{problem.path}: Invalid value: {problem.problem}"


def _cannot_be_fulfilled(kind: Kind, what: str, ref: ObjectRef, text: str, says: str) -> ConflictError:
    message = f'Operation cannot be fulfilled on {what} "{ref.name}": {says}'
    return ConflictError(kind.resource, ref.key, text, server_message=message)
