"""The secret with which a plugin verifies its host: in a file that both read, or in a child's environment.

`berth-sdk serve` and the host read it, and the host sends it. The secret is never logged.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from berth_sdk.errors import BerthError

CREDENTIAL: Final = "BERTH_PLUGIN_CREDENTIAL"
_MAX_BYTES: Final = 4096


class CredentialError(BerthError):
    """The error of a secret that cannot be read. The text names the file and the cure."""


def read_credential(path: str) -> str:
    """Return the text of the file, without surrounding white space. Raises CredentialError."""
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
    """Return the credential that the host gave its child; empty if none.

    Removes it from `environment`, so that no child process inherits it.
    """
    return environment.pop(CREDENTIAL, "")
