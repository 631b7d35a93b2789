"""The secrets of the configuration, which log lines and errors of plugins must not show.

A plugin gets its arguments and may log them or raise them in an error. `hide` is called whenever a
configuration or a kubeconfig is read. Secrets of earlier ones stay hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "DATA+OMITTED"
"""The text in place of a secret, as in `kubectl config view`."""
_MIN_LENGTH: Final = 4
"""The shortest hidden value, in characters: shorter values, such as `on`, occur as ordinary words."""
_hidden: tuple[tuple[str, re.Pattern[str]], ...] = ()
"""The secrets, longest first, because a shorter one may be part of a longer one. The tuple is replaced as a
whole, because other threads read it.
"""


def hide(secrets: Iterable[str]) -> None:
    """Hide these values from now on."""
    global _hidden  # noqa: PLW0603  # one process has one log
    known = {secret for secret, _ in _hidden}
    new = {secret for secret in secrets if len(secret) >= _MIN_LENGTH} - known
    if new:
        made = ((secret, re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)")) for secret in sorted(new))
        _hidden = tuple(sorted((*_hidden, *made), key=lambda one: len(one[0]), reverse=True))


def without_hidden(text: str) -> str:
    """Return the text with MASK in place of every hidden value."""
    for secret, pattern in _hidden:
        if secret in text:
            text = pattern.sub(MASK, text)
    return text
