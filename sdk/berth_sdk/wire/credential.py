"""The secret by which a plugin recognises its host: a file that both read, or the environment of a child.

Read by `berth-sdk serve` and by the host, which sends it. Never logged.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from berth_sdk.errors import BerthError

CREDENTIAL: Final = "BERTH_PLUGIN_CREDENTIAL"
_MAX_BYTES: Final = 4096


class CredentialError(BerthError):
    """There is no secret to be read; the text names the file and the cure."""


def read_credential(path: str) -> str:
    """The text of the file, without the space around it. Raises CredentialError."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is no text"
        raise CredentialError(f"the credential in {path} cannot be read: {why}") from err
    if not text:
        raise CredentialError(f"{path} holds no credential: write one line of secret text into it")
    if len(text) > _MAX_BYTES:
        raise CredentialError(f"{path} holds more than a credential: {_MAX_BYTES} characters are the limit")
    return text


def take_credential(environment: MutableMapping[str, str]) -> str:
    """The credential that the host gave its child, empty if none; removed, so that no process started here
    inherits it.
    """
    return environment.pop(CREDENTIAL, "")
