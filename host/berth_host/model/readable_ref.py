"""The ref of an object that any client may have written, and that may be malformed.

Called by the handlers of watch events, and for objects that are read back.
"""

from __future__ import annotations

from berth_sdk.kube_object import KubeObject, ObjectRef


def readable_ref(item: KubeObject) -> ObjectRef:
    """Return the ref of an object; a ref without a name if it cannot be read."""
    try:
        ref = item.ref
    except Exception:  # noqa: BLE001  # not even its metadata can be read
        return ObjectRef(name="")
    parts = (ref.name, ref.namespace, ref.uid, ref.resource_version)
    return ref if all(isinstance(part, str) for part in parts) else ObjectRef(name="")
