"""Real processes come back within a tenth of a second here, and hosts notice as soon."""

from __future__ import annotations

import pytest
from berth_host.attach import backoff


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(backoff, "FIRST_S", 0.05)
    monkeypatch.setattr(backoff, "MAX_S", 0.1)
