"""Masks secrets wherever a configuration is shown: check-config, /configz, the log, messages, errors.

    masked(value)              a value, with every secret by the name of its field, flag or variable replaced
    masked_arguments(words)    a command line
    secrets_of(value)          the secrets themselves, for `log.hidden`
    without_secrets(message, text)  a message about a text, which may be no YAML; `hider_of` for many messages

A secret is told by its name, by its place (the password in a URL, the value of an Authorization header) or by
its form (a private key in PEM, a JSON Web Token). `--write-config-to` writes a file to start from, so there
secrets stay.
Source of the mask: kubectl config view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from berth_host.log.hidden import MASK

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

_KEYS: Final = ("api", "private", "secret", "access", "signing", "encryption", "shared", "master", "account")
_STEMS: Final = (
    *(f"{word}{dash}key" for word in _KEYS for dash in ("", "-", "_")),
    *("keydata", "key-data", "key_data", "token", "passw", "pass-w", "pass_w", "passphrase", "pwd"),
    *("secret", "credential", "authorization", "bearer", "cookie"),
)
"""Parts of secrets' names, one in each of them: a line without a part holds no name."""
_NAMES: Final = (
    r"(?:key[-_]?data|token|pass[-_]?word|passwd|passphrase|pwd|secret|credential|authorization|bearer|cookie|"
    rf"(?:{'|'.join(_KEYS)})[-_]?key)s?"
)
# From the start of a word only: a search would take quadratic time in a long word.
_START: Final = r"(?<![\w.-])"
_NAME: Final = rf"{_START}[\w.-]*{_NAMES}"
_FLAG_NAME: Final = rf"{_START}-[\w.-]*{_NAMES}"
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_QUOTED: Final = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_ARGUMENT: Final = re.compile(rf"({_NAME})=(.+)", re.IGNORECASE | re.DOTALL)
_FLAG: Final = re.compile(_FLAG_NAME, re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
_IN_URL: Final = re.compile(r"(?<=://)([^/@\s:'\"]*):([^/@\s'\"]+)(?=@)")
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+([^\s'\"]+)", re.IGNORECASE)
_HEADER: Final = re.compile(
    rf"({_START}(?:[\w-]+-)?(?:authorization|cookie)\s*:\s+)([^\s'\"][^\n'\"]*)", re.IGNORECASE
)
"""A header of HTTP whose value may be of several words: `Authorization: token x`."""
_BY_FORM: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{10,}\.[\w-]{2,}\.[\w-]{10,}",
    re.DOTALL,
)
"""A private key in PEM, and a JSON Web Token, such as the token of a service account."""
_ASSIGNED: Final = re.compile(rf"({_NAME})(=|:\s+)({_QUOTED}|\S+)", re.IGNORECASE)
_AFTER_FLAG: Final = re.compile(rf"({_FLAG_NAME})(\s+)({_QUOTED}|[^\s-]\S*)", re.IGNORECASE)
_VALUE: Final = rf"(?:[!&]\S*\s+)*\*?({_QUOTED}|[^\s,}}\]\[{{#]+)"
_IN_TEXT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NAME}[\"']?\s*[:=]\s*{_VALUE}",
        rf"{_FLAG_NAME}[\"']?(?:\s*,|\s*\n\s*-|\s)\s*{_VALUE}",
        rf"{_NAME}[\"']?\s*[,\n]\s*[\"']?value[\"']?\s*[:=]\s*{_VALUE}",
    )
)
"""`token: x`, `"token": "x"` and `--token=x`; `--token, x` and `- --token\\n- x`; `name: TOKEN, value: x`."""


def masked(value: Json) -> Json:
    """Return `value` with every secret in it replaced by MASK."""
    if isinstance(value, dict):
        return masked_object(value)
    if isinstance(value, list):
        return _masked_list(value)
    return _masked_word(value) if isinstance(value, str) else value


def masked_object(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return an object with its secrets masked; empty ones stay empty."""
    is_variable = isinstance(name := value.get("name"), str) and _is_secret(name)
    return {
        key: _hidden(item) if _is_secret(key) or (is_variable and key == "value") else masked(item)
        for key, item in value.items()
    }


def masked_arguments(words: Sequence[str]) -> list[str]:
    """Return a command line with the values of `--token x`, `--token=x` and `TOKEN=x` masked."""
    return [str(item) for item in _masked_list(list(words))]


def without_secrets(message: str, *texts: str) -> str:
    """Return a message about some texts without what looks like a secret in them. They may be no YAML."""
    return hider_of(*texts)(message)


def hider_of(*texts: str) -> Callable[[str], str]:
    """Return what takes the secrets of some texts out of a message: `without_secrets` for many messages."""
    return _hiding({found for text in texts for found in _secrets_in(text)})


def _hiding(secrets: set[str]) -> Callable[[str], str]:
    """Return what hides the secrets in a message: made once for all messages, of which there may be many.

    Secrets count as words: one of a single letter is not every letter of the message.
    """
    words = {secret for secret in secrets if _WORD.fullmatch(secret)}
    others = [
        (secret, re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)"))
        for secret in sorted(secrets - words, key=len, reverse=True)
    ]

    def shown(message: str) -> str:
        message = _masked_text(message)
        for secret, pattern in others:
            if secret in message:
                message = pattern.sub(MASK, message)
        return _WORD.sub(lambda word: MASK if word[0] in words else word[0], message) if words else message

    return shown


def secrets_of(*values: Any) -> set[str]:
    """Return the secrets of some values of JSON, such as a whole document."""
    return {secret for value in values for secret in _secrets_of(value)}


def _is_secret(name: str) -> bool:
    found = _SECRET_NAME.fullmatch(name)
    return found is not None


def _hidden(value: Json) -> Json:
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    if isinstance(value, dict):
        return masked_object(value)
    return value if isinstance(value, bool) or value in (None, "") else MASK


def _masked_list(items: list[Json]) -> list[Json]:
    shown: list[Json] = []
    is_next_secret = False
    for item in items:
        if not isinstance(item, str):
            shown.append(masked(item))
        elif is_next_secret:
            shown.append(MASK)
        else:
            shown.append(_masked_word(item))
        is_next_secret = isinstance(item, str) and not is_next_secret and _FLAG.fullmatch(item) is not None
    return shown


def _masked_word(word: str) -> str:
    whole = _ARGUMENT.fullmatch(word)
    if whole is not None:
        return f"{whole[1]}={MASK}"
    # A word may be a whole command: `sh -c "TOKEN=x serve"`.
    word = _HEADER.sub(rf"\1{MASK}", word)
    for pattern in (_ASSIGNED, _AFTER_FLAG):
        word = pattern.sub(rf"\1\2{MASK}", word)
    return _masked_text(word)


def _masked_text(text: str) -> str:
    """Return a text without the secrets in it that need no name."""
    text = _HEADER.sub(rf"\1{MASK}", _BY_FORM.sub(MASK, text))
    return _BEARER.sub(rf"\1 {MASK}", _IN_URL.sub(rf"\1:{MASK}", text))


def _secrets_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        for pattern, group in (
            *((_HEADER, 2), (_ASSIGNED, 3), (_AFTER_FLAG, 3)),
            *((_IN_URL, 2), (_BEARER, 2), (_BY_FORM, 0)),
        ):
            yield from (_unquoted(found[group]) for found in pattern.finditer(value))
    elif isinstance(value, Mapping):
        is_variable = isinstance(name := value.get("name"), str) and _is_secret(name)
        for key, item in value.items():
            if (_is_secret(str(key)) or (is_variable and key == "value")) and not isinstance(item, bool):
                yield from _scalars(item)
            else:
                yield from _secrets_of(item)
    elif isinstance(value, list | tuple):
        for before, item in zip(("", *value), value, strict=False):
            if isinstance(before, str) and _FLAG.fullmatch(before):
                yield from _scalars(item)
            yield from _secrets_of(item)


def _secrets_in(text: str) -> set[str]:
    """Return what looks like a secret in a text, which may be no YAML."""
    near = _near_names(text)
    found = {_unquoted(match[1]) for pattern in _IN_TEXT for match in pattern.finditer(near)}
    urls = {url[2] for url in _IN_URL.finditer(text)} if "@" in text else set()
    formed = set(_BY_FORM.findall(text)) if "-----BEGIN" in text or "eyJ" in text else set[str]()
    return found | urls | formed | set(_secrets_of(near))


def _near_names(text: str) -> str:
    """Return the lines that hold a part of a secret's name, each with the next one."""
    lowered = text.lower()
    stems = [stem for stem in _STEMS if stem in lowered]
    if not stems:
        return ""
    lines = text.split("\n")
    near = [number for number, line in enumerate(lines) if any(stem in line.lower() for stem in stems)]
    return "\n".join("\n".join(lines[number : number + 2]) for number in near)


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] in "\"'" and word[-1] == word[0] else word


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        yield from (scalar for item in value for scalar in _scalars(item))
    elif isinstance(value, Mapping):
        yield from _secrets_of(value)
    elif value not in (None, ""):
        yield str(value)
