"""`SelectorCache`: the selectors of classes and requests, evaluated once per device.

Source: `allocator_incubating.go` (selectorsMatch), v1.36: its texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from berth_sdk.kube_object import KubeObject

from berth_plugins.cel.errors import CelError
from berth_plugins.dynamic_resources.cel import Expression
from berth_plugins.dynamic_resources.devices import Device
from berth_plugins.dynamic_resources.requests import Request
from berth_plugins.dynamic_resources.search import AllocationError

_MAX_EXPRESSIONS: Final = 64
_MAX_BYTES: Final = 128 * 1024
"""The limit for the text of all expressions that are kept compiled. Compiled, an expression takes some two
hundred times as much memory as its text.
"""
_MAX_ANSWERS: Final = 65536

_Known: TypeAlias = tuple[Expression | CelError, dict[Device, bool | CelError]]


class SelectorCache:
    """Implements `search.Selectors`. The least recently used expressions are dropped, with their results."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._bytes = 0

    def admits(self, claim: str, request: Request, device_class: KubeObject, device: Device) -> bool:
        """Return True if the class's selectors, and then the request's, are all true. Raises
        AllocationError.
        """
        return self._all(
            f"class {device_class.ref.name}", class_selectors(device_class), device
        ) and self._all(f"claim {claim}", request.selectors, device)

    def _all(self, owner: str, expressions: Iterable[str | None], device: Device) -> bool:
        for i, text in enumerate(expressions):
            expression, answers = self._find(text or "")
            if isinstance(expression, CelError):
                raise AllocationError(f"{owner}: selector #{i}: CEL compile error: {expression}")
            answer = answers.get(device)
            if answer is None:
                answer = _evaluated(expression, device)
                if len(answers) >= _MAX_ANSWERS:
                    answers.clear()
                answers[device] = answer
            if isinstance(answer, CelError):
                raise AllocationError(
                    f"{owner}: selector #{i} on device {device.id}: CEL runtime error: {answer}"
                )
            if not answer:
                return False
        return True

    def _find(self, text: str) -> _Known:
        known = self._known.get(text)
        if known is None:
            try:
                known = Expression(text), {}
            except CelError as err:
                known = CelError(str(err)), {}
            self._known[text] = known
            self._bytes += _size(text)
            while len(self._known) > 1 and (len(self._known) > _MAX_EXPRESSIONS or self._bytes > _MAX_BYTES):
                dropped, _ = self._known.popitem(last=False)
                self._bytes -= _size(dropped)
        else:
            self._known.move_to_end(text)
        return known


def _evaluated(expression: Expression, device: Device) -> bool | CelError:
    try:
        return expression.matches(device)
    except CelError as err:
        # Kept without the frames of the evaluation, and so without its values.
        return CelError(str(err))


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def class_selectors(device_class: KubeObject) -> list[str | None]:
    """Return the expressions of a class. None stands for a selector of another kind."""
    selectors: list[dict[str, Any]] = device_class.get("spec.selectors") or []
    return [(one.get("cel") or {}).get("expression") for one in selectors]
