"""`Undeclared`: stands in a record for a part that the plugin did not declare in `needs`.

Every use of it raises UndeclaredError, which names the part and the need: in the host, in a process of the
plugin's own, and in `berth_sdk.testing`. So a part that was not asked for never looks empty.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from berth_sdk.errors import UndeclaredError


class Undeclared:
    """One part, as a plugin writes it (`pod.object`), and the need that brings it (`Need.whole_pod()`)."""

    __slots__ = ("need", "part")

    def __init__(self, part: str, need: str) -> None:
        self.part = part
        self.need = need

    def refuse(self, part: str = "") -> NoReturn:
        """Raise UndeclaredError. `part`: the part that was read, where it lies within this one."""
        raise UndeclaredError(part or self.part, self.need)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols of Python itself, such as copying
        self.refuse()

    def __bool__(self) -> bool:
        raise UndeclaredError(self.part, self.need)

    def __len__(self) -> int:
        raise UndeclaredError(self.part, self.need)

    def __iter__(self) -> Any:
        self.refuse()

    def __contains__(self, item: object) -> bool:
        self.refuse()

    def __getitem__(self, key: object) -> Any:
        self.refuse()

    def __repr__(self) -> str:
        return f"<undeclared {self.part}>"


POD_OBJECT: Final = Undeclared("pod.object", "Need.whole_pod()")
"""The JSON of the pod that a call is about."""
