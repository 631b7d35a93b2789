"""Settings with which no leader election can work."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from berth_host.config.decoding.types_v1 import LeaderElection
from berth_host.process.lease_settings import check_settings


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lease_duration_s": 10.0}, "leaseDuration must be greater than renewDeadline"),
        ({"renew_deadline_s": 2.4}, "renewDeadline must be greater than retryPeriod"),
        (
            {"lease_duration_s": 0.5, "renew_deadline_s": 0.4, "retry_period_s": 0.1},
            "at least one second",
        ),
        ({"resource_name": "A/../b"}, "resourceName 'A/../b': a lowercase RFC 1123 subdomain"),
        ({"resource_name": ""}, "resourceName '': a lowercase RFC 1123 subdomain"),
        ({"resource_name": "a" * 254}, "must be no more than 253 bytes"),
        ({"resource_namespace": "a.b"}, "resourceNamespace 'a.b': a lowercase RFC 1123 label"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], text: str) -> None:
    settings = LeaderElection(
        leader_elect=True,
        lease_duration_s=15.0,
        renew_deadline_s=10.0,
        retry_period_s=2.0,
        resource_lock="leases",
        resource_name="n.a",
        resource_namespace="ns",
    )
    check_settings(settings)
    with pytest.raises(ValueError, match=re.escape(text)):
        check_settings(replace(settings, **changes))
