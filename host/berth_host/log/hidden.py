"""The secrets that log lines and errors of plugins must not show: those of the configuration, of the
handshake with plugins, and of their calls to the host.

A plugin gets these values and may log them or raise them in an error, as in the debug print of a message.
`hide` is called whenever a configuration or a kubeconfig is read, and for each credential and token. Secrets
of earlier configurations stay hidden; `forget` is for a credential or a token that is no longer valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.text_encoding import CEscape

MASK: Final = "DATA+OMITTED"
"""The text in place of a secret, as in `kubectl config view`."""
_MIN_LENGTH: Final = 4
"""The shortest hidden value, in characters: shorter values, such as `on`, occur as ordinary words."""
_START: Final = "|".join(
    (
        r"(?<!\w)",
        # The letter or digit before the secret may end an escape, such as that of a line end, or a colour.
        r"(?<=\\[abfnrtv])",
        r"(?<=\\u[\da-fA-F]{4})",
        r"(?<=\\x[\da-fA-F]{2})",
        r"(?<=\\[0-7]{3})",
        *(rf"(?<=\x1b\[{numbers}m)" for numbers in (r"\d", r"\d\d", r"\d;\d\d")),
    )
)
"""Pattern of a word boundary: a secret inside a longer word is not masked."""
_hidden: tuple[tuple[str, re.Pattern[str]], ...] = ()
"""The secrets, longest first, because a shorter one may be part of a longer one. The tuple is replaced as a
whole, because other threads read it.
"""


def hide(secrets: Iterable[str]) -> None:
    """Hide these values from now on, also as JSON, Python and protobuf write them between quotes."""
    known = {secret for secret, _ in _hidden}
    new = {form for secret in secrets if len(secret) >= _MIN_LENGTH for form in _forms(secret)} - known
    if new:
        made = ((secret, re.compile(rf"(?:{_START}){re.escape(secret)}(?!\w)")) for secret in sorted(new))
        _replace((*_hidden, *made))


def forget(secrets: Iterable[str]) -> None:
    """Stop hiding these values."""
    old = {form for secret in secrets for form in _forms(secret)}
    _replace(one for one in _hidden if one[0] not in old)


def without_hidden(text: str) -> str:
    """Return the text with MASK in place of every hidden value."""
    for secret, pattern in _hidden:
        if secret in text:
            text = pattern.sub(MASK, text)
    return text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield CEscape(secret, as_utf8=False)  # type: ignore[arg-type]  # it takes text too
    yield CEscape(secret, as_utf8=True)  # type: ignore[arg-type]


def _replace(hidden: Iterable[tuple[str, re.Pattern[str]]]) -> None:
    global _hidden  # noqa: PLW0603  # one process has one log
    _hidden = tuple(sorted(hidden, key=lambda one: len(one[0]), reverse=True))
