"""Builds the embedded server's errors in a real API server's words.

Users know these texts from kubectl, and kube-scheduler writes them into the conditions of pods. An
InvalidError also has berth's own texts, in `problems`, which name the cure.
Source: apimachinery `api/errors/errors.go`, `util/validation/field/errors.go`; apiserver `registry/rest`,
`storage/errors.go`; `pkg/registry/core/pod/storage/storage.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.errors.cluster import (
    ConflictError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from berth_sdk.kube_object import ObjectRef

from berth_sim.cluster.kinds import Kind

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def not_found(kind: Kind, ref: ObjectRef) -> NotFoundError:
    """Return the error for an object that does not exist."""
    return NotFoundError(kind.resource, ref.key, server_message=f'{kind.qualified} "{ref.name}" not found')


def already_exists(kind: Kind, key: str, name: str) -> ConflictError:
    """Return the error for a name that is taken."""
    text = "already exists"
    return ConflictError(kind.resource, key, text, server_message=f'{kind.qualified} "{name}" {text}')


def modified(kind: Kind, ref: ObjectRef, expected: str) -> ConflictError:
    """Return the error for a write based on an older resource version."""
    text = f"has changed: it is at version {ref.resource_version}, not {expected}"
    return _cannot_be_fulfilled(kind, kind.qualified, ref, text, _MODIFIED)


def other_object(kind: Kind, found: ObjectRef, wanted_uid: str) -> ConflictError:
    """Return the error for a write to an object that was replaced by another one of the same name."""
    text = f"is another object now: uid {found.uid}, not {wanted_uid}"
    says = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{kind.plural}/{found.key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted_uid}, "
        f"UID in object meta: {found.uid}"
    )
    return _cannot_be_fulfilled(kind, kind.qualified, found, text, says)


def other_object_to_delete(kind: Kind, found: ObjectRef, wanted_uid: str) -> ConflictError:
    """Return the error of `other_object` in the words for a deletion."""
    text = f"is another object now: uid {found.uid}, not {wanted_uid}"
    says = (
        f"the UID in the precondition ({wanted_uid}) does not match the UID in record ({found.uid}). "
        "The object might have been deleted and then recreated"
    )
    return _cannot_be_fulfilled(kind, kind.qualified_kind, found, text, says)


def cannot_bind(kind: Kind, ref: ObjectRef, text: str) -> ConflictError:
    """Return the error for a pod that cannot be bound. `text`: the pod's state, without its name."""
    return _cannot_be_fulfilled(kind, "pods/binding", ref, text, f"pod {ref.name} {text}")


def forbidden(kind: Kind, key: str, name: str, reason: str) -> ForbiddenError:
    """Return the error for an object that an admission plugin refuses."""
    says = f'{kind.qualified} "{name}" is forbidden: {reason}'
    return ForbiddenError(kind.resource, key, reason, server_message=says)


def contradictory(kind: Kind, key: str, name: str, causes: Sequence[str]) -> ForbiddenError:
    """Return the error for an object that became invalid by the fields that admission plugins added."""
    text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    says = f'{kind.qualified_kind} "{name}" is invalid: {text}'
    return ForbiddenError(kind.resource, key, text, server_message=says)


def invalid(kind: Kind, key: str, name: str, problems: Sequence[FieldProblem]) -> InvalidError:
    """Return the error for an invalid object; its text names every problem."""
    causes = [_cause(problem) for problem in problems]
    text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    says = f'{kind.qualified_kind} "{name}" is invalid: {text}'
    return InvalidError(kind.resource, key, problems, server_message=says)


def _cause(problem: FieldProblem) -> str:
    """Return a problem as text: `spec.x: Required value`, `spec.x: Invalid value: ...`."""
    if problem.problem == "is required":
        return f"{problem.path}: Required value"
    if not problem.path:
        return problem.problem
    return f"{problem.path}: Invalid value: {problem.problem}"


def _cannot_be_fulfilled(kind: Kind, what: str, ref: ObjectRef, text: str, says: str) -> ConflictError:
    message = f'Operation cannot be fulfilled on {what} "{ref.name}": {says}'
    return ConflictError(kind.resource, ref.key, text, server_message=message)
