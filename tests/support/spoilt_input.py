"""Valid input of a command -> the same, spoilt: values, keys, nesting, bytes, encodings, paths, words.

    raw = spoilt(documents, random.Random(seed))

What is random comes from the `random.Random` that is given, so a seed repeats.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import yaml

_LONG: Final = 3000
TEXTS: Final = (
    *("", " ", "-", "\x00", "a\x00b", "\x1b[31mred", "ä\u2028\U0001f600", "x" * 300, "y" * _LONG, "..", "/"),
    *("~", "~nobody/x", "null", "true", "yes", "1", "010", "-1", "1e400", "nan", "2026-01-01", "100m", "5Gi"),
    *("a=b", "a,b", "{}", "[]", "%s%n", "{0}", "*", "https://", "http://[", "unix:", "unix:///" + "s" * 200),
    *("unix:///a\x00b", "127.0.0.1:1", "127.0.0.1:99999", "os:system", "os:nothing", ":", "no_such_module:X"),
    *(
        "1h",
        "-5s",
        "10",
        "In",
        "Exists",
        "NotIn",
        "Fail",
        "default",
        "kube-system/x",
        "example.com/gpu",
        "=====",
    ),
)
NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    100,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    -1.5,
    1e300,
)
_ODD_JSON: Final = (
    "1e999",
    "-0",
    "NaN",
    '"\\ud800"',
    '"\\u0000"',
    "[",
    "{",
    '{"a":1,"a":2}',
    "tru",
    "1.",
    "'a'",
)
_ODD_YAML: Final = (
    *(
        "!!binary zzz=",
        "!!int x",
        "!!python/object:os.system {}",
        "*unknown",
        "&a [*a]",
        "<<: 1",
        "? [a]\n: b",
    ),
    *(
        "\t- x",
        "%YAML 9.9",
        "---",
        "--- # c",
        "...",
        "--- {a: b}",
        "@x",
        "`x`",
        "'x",
        '"x',
        "|9\n x",
        "{a: {b: [",
        "!",
    ),
)
_ODD_BYTES: Final = (
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\r",
    b"\x85",
    b"\x1b",
    b"\t",
    b"\n",
)
_BOMB: Final = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
WHOLE: Final[Sequence[bytes]] = (
    b"",
    b"\x00" * 64,
    b"\x7fELF\x02\x01\x01" + bytes(range(256)),
    _BOMB.encode(),
    b"[" * 20_000,
    b"{a: " * 20_000,
    b"- " * 20_000,
    b'{"a":' * 20_000,
    b"a: " + b"x" * 1_000_000,
    b"9" * 10_000,
    b"---\n" * 3000,
    b"null\n---\n5\n---\n[]\n---\nx\n",
    b"kind: Pod\n",
    "apiVersion: v1\nkind: Pod\n".encode("utf-16"),
    "apiVersion: v1\nkind: Pod\nmetadata: {name: \xe4}\n".encode("latin-1"),
    b"apiVersion: v1\nkind: List\nitems: [null, 5, {}, [], {kind: List, items: [{}]}]\n",
)
"""Files that are nothing like what is asked for."""
WORDS: Final = (
    *("", "-", "--", "---", "-1", "0", "1e400", "nan", "inf", "9" * 30, "0x10", "1_000", "\u2603", "\udcff"),
    *(
        "a" * 5000,
        "//dev",
        "/dev/null",
        "/no/such/file",
        "no/..",
        "%s",
        "{}",
        "a=b",
        "a=",
        "=",
        ",",
        "[",
        "*",
        "\n",
    ),
    *(
        "~nobody/x",
        "http://[",
        "https://u:p@h:0",
        "https://h:99999",
        "https://127.0.0.1:1",
        "true",
        "x/y/z",
        "\x1b",
    ),
)
"""Words of a command line: those of values, of files, of other options."""


def spoilt(documents: Sequence[Any], rng: random.Random, spoils: int = 2) -> bytes:
    """Return the text of the documents with some of their values spoilt, or some of its bytes."""
    if rng.random() < 0.1:
        return rng.choice(WHOLE)
    changed = [copy.deepcopy(document) for document in documents]
    for _ in range(rng.randint(0, spoils)):
        number = rng.randrange(len(changed))
        changed[number] = _spoilt_value(changed[number], rng)
    text = _text(changed, rng)
    if rng.random() < 0.4:
        text = _spoilt_text(text, rng)
    raw = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        raw = _spoilt_bytes(raw, rng)
    return raw


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    """Return any value that JSON has."""
    kind = rng.randrange(9 if depth < 3 else 5)
    if kind <= 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return rng.choice(NUMBERS)
    if kind <= 4:
        return rng.choice((None, True, False, [], {}))
    if kind == 5:
        return [odd_value(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if kind == 6:
        return [None]
    return {rng.choice(TEXTS) or "k": odd_value(rng, depth + 1) for _ in range(rng.randint(1, 3))}


def _spoilt_value(value: Any, rng: random.Random) -> Any:
    places = list(_places(value))
    if not places:
        return odd_value(rng)
    holder, key = rng.choice(places)
    spoil: Callable[[Any, Any, random.Random], None] = rng.choice(
        (_replace, _replace, _replace, _drop, _rename, _double)
    )
    spoil(holder, key, rng)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return every (holder, key or index) below the value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _replace(holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = odd_value(rng)


def _drop(holder: Any, key: Any, rng: random.Random) -> None:
    del holder[key]


def _rename(holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder, dict):
        holder[rng.choice((str(key).upper(), f"{key}s", str(key)[:-1], rng.choice(TEXTS)))] = holder.pop(key)
    else:
        holder.insert(0, holder[key])


def _double(holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = [holder[key], holder[key]] if rng.random() < 0.5 else {"x": holder[key]}


def _text(documents: Sequence[Any], rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "\n".join(json.dumps(document, indent=rng.choice((None, 1))) for document in documents)
    return yaml.safe_dump_all(
        documents, allow_unicode=rng.random() < 0.5, default_flow_style=rng.choice((None, False))
    )


def _spoilt_text(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    choice = rng.randrange(7)
    if choice == 0:
        return text[:at]
    if choice == 1:
        return text.replace("\n", rng.choice(("\r\n", "\r", "\n\n", "\u2028")))
    if choice == 2:
        return "\ufeff" + text
    line = text.rfind("\n", 0, at) + 1
    if choice == 3:
        return text[:line] + rng.choice(_ODD_YAML) + "\n" + text[line:]
    if choice == 4:
        colon = text.find(":", at)
        return (
            text
            if colon < 0
            else f"{text[: colon + 1]} {rng.choice((*_ODD_JSON, *_ODD_YAML))}\n{text[colon + 1 :]}"
        )
    if choice == 5:
        return text[:line] + text[line : line + 200] * 3 + text[line:]
    return text[:at] + text[min(len(text), at + rng.randint(1, 20)) :]


def _spoilt_bytes(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(raw))
    return raw[:at] + rng.choice(_ODD_BYTES) + raw[at:]
