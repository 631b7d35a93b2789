"""A source text -> its tokens.

Source: `cel-go` parser/gen/CEL.g4 and parser/unescape.go, v0.29.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from berth_plugins.cel.errors import Issues
from berth_plugins.cel.pieces import count

END: Final = "<EOF>"
IDENTIFIER: Final = "IDENTIFIER"
ESCAPED: Final = "ESC_IDENTIFIER"
INT: Final = "NUM_INT"
UINT: Final = "NUM_UINT"
FLOAT: Final = "NUM_FLOAT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})


WORK: Final = 5
"""Reading one token takes about as long as so much cost of an evaluation."""


class Token(NamedTuple):
    """A token. `kind`: the name of its rule, or its own text. `offset` counts code points from 0."""

    kind: str
    text: str
    offset: int


_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TEXT: Final = (
    rf"[rR]\"\"\"(?s:.*?)\"\"\"|[rR]'''(?s:.*?)'''|[rR]\"[^\"\n\r]*\"|[rR]'[^'\n\r]*'"
    rf"|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_TOKEN: Final = re.compile(
    rf"(?P<SKIP>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<{BYTES}>[bB](?:{_TEXT}))"
    rf"|(?P<{STRING}>{_TEXT})"
    rf"|(?P<{IDENTIFIER}>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|(?P<{FLOAT}>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<{UINT}>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])"
    rf"|(?P<{INT}>0x[0-9a-fA-F]+|[0-9]+)"
    rf"|(?P<{ESCAPED}>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<SIGN>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])"
)
# The start of a sign of two characters: the character after it is reported too.
_HALF_SIGNS: Final = "=&|"


def tokens_of(text: str, issues: Issues) -> list[Token]:
    """Return the tokens, with END as the last. What is no token is reported and left out."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        count(WORK)
        match = _TOKEN.match(text, at)
        if match is None:
            at += _report(text, at, issues)
            continue
        kind, word = match.lastgroup or "", match[0]
        if kind == "SIGN" or (kind == IDENTIFIER and word in _KEYWORDS):
            kind = word
        if kind != "SKIP":
            found.append(Token(kind, word, at))
        at = match.end()
    found.append(Token(END, END, len(text)))
    return found


def _report(text: str, at: int, issues: Issues) -> int:
    """Report what is no token. Return its length in code points."""
    length = 1
    if text[at] in "\"'":
        end = re.compile(r"[\n\r]|$").search(text, at)
        length = (len(text) if end is None else end.start()) - at
    shown = text[at : at + length]
    if text[at] in _HALF_SIGNS:
        shown = text[at : at + 2]
        length = len(shown) if shown[1:] in (" ", "\t") else 1
    issues.add(at, f"Syntax error: token recognition error at: '{shown}'")
    return length


# --- literals --------------------------------------------------------------------------------------

_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPED: Final = re.compile(r"\\(?:([xX])(..)|u(.{4})|U(.{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


def text_of(word: str) -> str:
    """Return the value of a string literal. Raises ValueError with the reason."""
    inner, is_raw = _inner(word)
    return inner if is_raw else _ESCAPED.sub(_character, inner)


def bytes_of(word: str) -> bytes:
    """Return the value of a bytes literal. Raises ValueError with the reason."""
    inner, is_raw = _inner(word[1:])
    if is_raw:
        return inner.encode()
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPED.finditer(inner):
        parts.append(inner[at : match.start()].encode())
        _, byte, short, long, octal, simple = match.groups()
        if short or long:
            raise ValueError("unable to unescape string")
        code = int(byte, 16) if byte else int(octal, 8) if octal else ord(_SIMPLE[simple])
        parts.append(bytes((code,)))
        at = match.end()
    return b"".join((*parts, inner[at:].encode()))


def _inner(word: str) -> tuple[str, bool]:
    """Return what stands between the quotes, and True for a raw literal."""
    text = word.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    text = text.lstrip("rR") if is_raw else text
    quotes = 3 if text[:3] in ('"""', "'''") and len(text) > 5 else 1
    return text[quotes:-quotes], is_raw


def _character(match: re.Match[str]) -> str:
    _, byte, short, long, octal, simple = match.groups()
    if simple:
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code > _LAST_CHARACTER or code in _SURROGATES:
        raise ValueError("invalid unicode code point")
    return chr(code)
