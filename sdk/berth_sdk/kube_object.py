"""Kubernetes objects as they travel: the API server's JSON, parsed at most once.

`KubeObject` has no typed fields. Code that needs typed fields takes `berth_sdk.pod.Pod` or
`berth_sdk.node.Node`. Code that needs one more field calls `get(path)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.errors import ObjectError
from berth_sdk.json.objects import finish, object_steps
from berth_sdk.json.writer import write_json
from berth_sdk.parsing.frozen import maker_of

JsonObject = Mapping[str, Any]
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to an object. `namespace` is empty for cluster-scoped kinds, `uid` and `resource_version`
    where unknown.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


object_ref: Final = maker_of(ObjectRef)
"""Returns `ObjectRef(...)`, made faster, for code that makes one per object."""


class KubeObject:
    """One object of any kind. Holds the JSON bytes, the parsed form, or both, and makes each on demand.

    `release()` keeps the bytes only: 50 000 pods take 390 MB as bytes and 756 MB as dicts.
    """

    __slots__ = ("_parsed", "_raw", "_ref", "api_version", "kind")

    def __init__(
        self,
        api_version: str,
        kind: str,
        *,
        raw: bytes | None = None,
        parsed: JsonObject | None = None,
    ) -> None:
        if raw is None and parsed is None:
            raise ObjectError(kind, "neither bytes nor a parsed object was given")
        self.api_version = api_version
        self.kind = kind
        self._raw = raw
        self._parsed = parsed
        self._ref: ObjectRef | None = None

    @classmethod
    def of(cls, parsed: JsonObject) -> KubeObject:
        """Wrap a parsed object. apiVersion and kind come from the object."""
        return cls(str(parsed.get("apiVersion", "")), str(parsed.get("kind", "")), parsed=parsed)

    @property
    def raw(self) -> bytes:
        """The object as JSON bytes."""
        if self._raw is None:
            self._raw = write_json(self._parsed)
        return self._raw

    @property
    def is_parsed(self) -> bool:
        """True while the parsed form is in memory."""
        return self._parsed is not None

    @property
    def parsed(self) -> JsonObject:
        """The object as parsed JSON, read-only. Raises ObjectError for malformed bytes.

        Opaque parameters of devices, and what lies more than `MAX_DEPTH` levels deep, are `RawJson`.
        """
        return self._parsed if self._parsed is not None else self.parse(json.loads)

    def parse(self, decode: Callable[[bytes], Any]) -> JsonObject:
        """Return `parsed`, made with `decode` if need be. `decode` raises ValueError for bytes that it cannot
        read; these are then read without it, and are refused if they are not JSON.
        """
        if self._parsed is None:
            try:
                parsed = finish(object_steps(self.kind, self._raw or b"", decode))
            except ValueError as err:
                raise ObjectError(self.kind, f"not JSON: {err}") from err
            if not isinstance(parsed, dict):
                raise ObjectError(self.kind, "not a JSON object")
            self._parsed = parsed
        return self._parsed

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path of keys, or `default` where a key is missing or null."""
        value: Any = self.parsed
        for key in path.split("."):
            if type(value) is not dict and not isinstance(value, Mapping):
                return default
            value = value.get(key)
        return default if value is None else value

    @property
    def ref(self) -> ObjectRef:
        """Namespace, name, uid and resource version."""
        if self._ref is None:
            metadata = self.parsed.get("metadata") or {}
            self._ref = object_ref(
                name=metadata.get("name") or "",
                namespace=metadata.get("namespace") or "",
                uid=metadata.get("uid") or "",
                resource_version=metadata.get("resourceVersion") or "",
            )
        return self._ref

    def release(self, encode: Callable[[JsonObject], bytes] | None = None) -> None:
        """Drop the parsed form and keep the bytes, made with `encode` if need be. A later read parses the
        bytes again.
        """
        if self._raw is None:
            self._raw = self.raw if encode is None or self._parsed is None else encode(self._parsed)
        self._parsed = None

    def __repr__(self) -> str:
        return f"KubeObject({self.api_version}, {self.kind})"
