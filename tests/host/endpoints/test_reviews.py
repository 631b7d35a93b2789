"""Reviews of strangers are bounded, shared, and do not keep out those who were known lately."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.endpoints import reviews
from berth_host.endpoints.access import MOST, Authentication, Authorization
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.reviews import MOST_WAITING, Reviews
from berth_host.errors.endpoints import BusyError, ReviewError
from berth_host.model.user import ANONYMOUS, User
from support.serving import KnownUsers
from support.waiting import until

JANE = User(name="jane")
BURST = int(reviews.BURST_STRANGERS)
AT_ONCE = 2 * BURST
"""The burst, and what the rate allows in the seconds of a test."""


class SlowUsers(KnownUsers):
    """An API server that answers on demand. `open_count`, `most`: its reviews, now and at most."""

    def __init__(self) -> None:
        super().__init__({"known": JANE})
        self.answers = asyncio.Event()
        self.open_count = self.most = 0

    async def user_of(self, token: str) -> User | None:
        self.open_count += 1
        self.most = max(self.most, self.open_count)
        try:
            await self.answers.wait()
        finally:
            self.open_count -= 1
        return await super().user_of(token)


def bearer(token: str) -> dict[str, list[str]]:
    return {"authorization": [f"Bearer {token}"]}


async def test_few_reviews_of_made_up_tokens_are_under_way_and_the_rest_is_told_to_come_again() -> None:
    users = SlowUsers()
    authentication = Authentication(ServingOptions(), users)
    asked = [
        asyncio.ensure_future(authentication.user_of(bearer(f"made-up-{at}"), None)) for at in range(300)
    ]
    await until(lambda: sum(task.done() for task in asked) >= 300 - MOST_WAITING - BURST)
    assert users.open_count <= AT_ONCE
    refused = [task for task in asked if task.done()]
    assert all(isinstance(task.exception(), BusyError) for task in refused)
    users.answers.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert users.most <= AT_ONCE
    assert {type(answer) for answer in answers} <= {BusyError, type(None)}


async def test_callers_with_one_token_share_a_review_and_one_that_leaves_ends_it_for_nobody() -> None:
    users = SlowUsers()
    authentication = Authentication(ServingOptions(), users)
    asked = [asyncio.ensure_future(authentication.user_of(bearer("known"), None)) for _ in range(50)]
    await until(lambda: users.open_count == 1)
    asked[0].cancel()
    users.answers.set()
    answers = await asyncio.gather(*asked[1:])
    assert {answer.name for answer in answers if answer is not None} == {"jane"}
    assert users.asked == ["token known"]


async def test_caller_who_was_known_lately_passes_by_strangers() -> None:
    users, now_s = SlowUsers(), [0.0]
    authentication = Authentication(ServingOptions(), users, lambda: now_s[0])
    users.answers.set()
    assert await authentication.user_of(bearer("known"), None) is not None
    users.answers.clear()
    now_s[0] = 60.0  # the answer is no longer kept
    flood = [asyncio.ensure_future(authentication.user_of(bearer(f"x{at}"), None)) for at in range(100)]
    await until(lambda: users.open_count >= BURST)
    waiting = sum(not task.done() for task in flood) - users.open_count
    assert waiting > 0
    before = users.open_count
    known = asyncio.ensure_future(authentication.user_of(bearer("known"), None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert users.open_count > before
    users.answers.set()
    found = await known
    assert found is not None
    assert found.name == "jane"
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_made_up_tokens_push_out_no_valid_one() -> None:
    users = KnownUsers({"known": JANE})
    authentication = Authentication(ServingOptions(token_ttl_s=1000), users)
    refused = vars(authentication)["_refused"]
    assert await authentication.user_of(bearer("known"), None) is not None
    for at in range(MOST + 10):
        refused.put(at, True, 1000)
    assert await authentication.user_of(bearer("known"), None) is not None
    assert users.asked == ["token known"]


async def test_stranger_waits_for_a_turn_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "WAIT_S", 0.05)
    users = SlowUsers()
    authentication = Authentication(ServingOptions(), users)
    asked = [
        asyncio.ensure_future(authentication.user_of(bearer(f"x{at}"), None)) for at in range(BURST + 20)
    ]
    with pytest.raises(BusyError, match="ask again"):
        await asked[-1]
    users.answers.set()
    assert await asyncio.gather(*asked[:BURST]) == [None] * BURST
    await asyncio.gather(*asked[BURST:], return_exceptions=True)


async def test_error_of_a_review_reaches_every_caller_and_is_not_kept() -> None:
    found: Reviews[int] = Reviews()
    answers: list[ReviewError | int] = [ReviewError("nobody answers"), 7]

    async def review() -> int:
        answer = answers.pop(0)
        await asyncio.sleep(0)
        if isinstance(answer, ReviewError):
            raise answer
        return answer

    both = [found.ask("k", review, peer="", is_stranger=True) for _ in range(2)]
    assert [str(one) for one in await asyncio.gather(*both, return_exceptions=True)] == ["nobody answers"] * 2
    assert await found.ask("k", review, peer="", is_stranger=True) == 7


async def test_rights_to_made_up_paths_are_reviewed_at_a_bounded_rate() -> None:
    users = KnownUsers()
    authorization = Authorization(ServingOptions(), users)
    asked = [
        asyncio.ensure_future(authorization.may(ANONYMOUS, "GET", f"/made-up/{at}")) for at in range(500)
    ]
    await until(lambda: sum(task.done() for task in asked) >= 500 - MOST_WAITING - BURST)
    assert len(users.asked) <= reviews.BURST_STRANGERS + 20
    for task in asked:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert True not in answers


async def test_path_that_is_no_text_is_denied_without_a_review() -> None:
    users = KnownUsers()
    assert not await Authorization(ServingOptions(), users).may(JANE, "GET", "/\udcff")
    assert not users.asked
