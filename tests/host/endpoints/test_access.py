"""Which user a request comes from, and for how long that answer is kept."""

from __future__ import annotations

import pytest
from berth_host.endpoints.access import Authentication, Authorization, Certificate, NoReviewer
from berth_host.endpoints.options import ServingOptions
from berth_host.model.user import ANONYMOUS, ClientTrust, User
from support.serving import KnownUsers

AUTHENTICATED = "system:authenticated"
CLIENT = Certificate("jane", ("dev", "ops"), by_client_ca=True, by_proxy_ca=False)
PROXY = Certificate("front", (), by_client_ca=False, by_proxy_ca=True)
STRANGER = Certificate("mallory", (), by_client_ca=False, by_proxy_ca=False)
TRUST = ClientTrust(proxy_ca="-", proxy_names=("front",), uid_headers=("x-remote-uid",))
FORWARDED = {
    "x-remote-user": ["bob"],
    "x-remote-uid": ["42"],
    "x-remote-group": ["a", "b"],
    "x-remote-extra-scopes%2fall": ["x", "y"],
}
BOB = User(name="bob", uid="42", groups=("a", "b", AUTHENTICATED), extra={"scopes/all": ("x", "y")})
KNOWN = User(name="someuser", groups=(AUTHENTICATED,))


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("headers", "certificate", "user"),
    [
        ({}, None, ANONYMOUS),
        ({"authorization": ["Basic abc"]}, None, ANONYMOUS),
        ({"authorization": ["Bearer "]}, None, ANONYMOUS),
        ({"authorization": ["Bearer authenticatedWithoutRights"]}, None, KNOWN),
        ({"authorization": ["bearer authenticatedWithoutRights"]}, None, KNOWN),
        ({"authorization": ["Bearer nobody"]}, None, None),
        ({}, CLIENT, User(name="jane", groups=("dev", "ops", AUTHENTICATED))),
        # A certificate is looked at before the token.
        (
            {"authorization": ["Bearer nobody"]},
            CLIENT,
            User(name="jane", groups=("dev", "ops", AUTHENTICATED)),
        ),
        (FORWARDED, PROXY, BOB),
        # Anybody can write headers; they count from a front proxy alone.
        (FORWARDED, None, ANONYMOUS),
        (FORWARDED, CLIENT, User(name="jane", groups=("dev", "ops", AUTHENTICATED))),
        (FORWARDED, Certificate("other", (), by_client_ca=False, by_proxy_ca=True), ANONYMOUS),
        ({}, PROXY, ANONYMOUS),
        ({}, STRANGER, None),
        (FORWARDED, STRANGER, None),
    ],
)
async def test_user_of_a_request_is_read_from_its_credentials(
    headers: dict[str, list[str]], certificate: Certificate | None, user: User | None
) -> None:
    authentication = Authentication(ServingOptions(trust=TRUST), KnownUsers())
    assert await authentication.user_of(headers, certificate) == user


async def test_review_answers_are_cached_until_their_ttl() -> None:
    users, clock = KnownUsers(), Clock()
    options = ServingOptions(token_ttl_s=10, allowed_ttl_s=20, denied_ttl_s=5)
    authentication, authorization = (
        Authentication(options, users, clock),
        Authorization(options, users, clock),
    )
    headers = {"authorization": ["Bearer authenticatedWithoutRights"]}

    async def asked() -> list[str]:
        users.asked.clear()
        await authentication.user_of(headers, None)
        assert await authorization.may(KNOWN, "GET", "/version")
        assert not await authorization.may(KNOWN, "GET", "/metrics")
        return list(users.asked)

    token, allowed, denied = (
        "token authenticatedWithoutRights",
        "someuser get /version",
        "someuser get /metrics",
    )
    assert await asked() == [token, allowed, denied]
    clock.now_s = 4.9
    assert await asked() == []
    clock.now_s = 5
    assert await asked() == [denied]
    clock.now_s = 10
    assert await asked() == [token, denied]
    clock.now_s = 20
    assert await asked() == [token, allowed, denied]


async def test_users_that_differ_in_groups_verb_or_path_are_asked_about_each() -> None:
    users = KnownUsers()
    authorization = Authorization(ServingOptions(), users)
    for user in (User(name="a"), User(name="a", groups=("g",)), User(name="a", extra={"x": ("y",)})):
        for method, path in (("GET", "/metrics"), ("DELETE", "/metrics"), ("GET", "/configz")):
            await authorization.may(user, method, path)
    assert len(users.asked) == 9


async def test_a_wrong_token_is_asked_about_once_and_trouble_is_not_kept() -> None:
    users = KnownUsers()
    authentication, authorization = (
        Authentication(ServingOptions(), users),
        Authorization(ServingOptions(), users),
    )
    wrong = {"authorization": ["Bearer nobody"]}
    users.is_reachable = False
    assert await authentication.user_of(wrong, None) is None
    assert not await authorization.may(KNOWN, "GET", "/version")
    users.is_reachable = True
    assert [await authentication.user_of(wrong, None) for _ in range(3)] == [None] * 3
    assert await authorization.may(KNOWN, "GET", "/version")
    assert users.asked == ["token nobody", "someuser get /version"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", True),
        ("/livez", True),
        ("/livez/", True),
        ("/readyz", True),
        ("/readyz/ping", False),
        ("/metrics", False),
    ],
)
async def test_health_needs_neither_permission_nor_the_api_server(path: str, allowed: bool) -> None:
    assert await Authorization(ServingOptions(), NoReviewer()).may(ANONYMOUS, "GET", path) is allowed


async def test_other_paths_can_be_opened_and_masters_may_all() -> None:
    options = ServingOptions(always_allowed=("/metrics", "/readyz/*"))
    authorization = Authorization(options, NoReviewer())
    assert await authorization.may(ANONYMOUS, "GET", "/metrics")
    assert await authorization.may(ANONYMOUS, "GET", "/readyz/ping")
    assert not await authorization.may(ANONYMOUS, "GET", "/healthz")
    assert await authorization.may(User(name="root", groups=("system:masters",)), "PUT", "/anything")
