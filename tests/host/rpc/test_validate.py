"""Answers that break the contract are refused, each with its own message; the others pass unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from berth_host.attempt.call_record import Reserved
from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc import calls
from berth_host.rpc.validate import Checker, ScoreRangeError
from berth_sdk.extension_points import ExtensionPoint, ScoreNormalization
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.results import (
    BindResult,
    FilterResult,
    ObjectPatch,
    PatchAction,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.testing.builders import make_pod
from support.relays import Facts

LOW = make_pod("low", uid="uid-low", priority=1, node="n1")
HIGH = make_pod("high", uid="uid-high", priority=100, node="n1")
POD = make_pod("web", uid="uid-web", priority=10)


def checker(normalization: ScoreNormalization = ScoreNormalization.NONE) -> Checker:
    descriptor = Descriptor(
        name="Demo",
        points=(ExtensionPoint.FILTER,),
        normalization=normalization,
        needs=(Need.nodes(), Need.objects("example.com/widgets")),
    )
    return Checker(descriptor, Facts({"n1": [LOW, HIGH], "n2": []}))


def int64(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(values, dtype=np.int64)


# --- verdicts and scores ---------------------------------------------------------------------------


def test_good_verdicts_pass_as_they_are() -> None:
    result = FilterResult(Verdicts.reject_where(np.asarray([True, False]), Status.unschedulable("no")))
    assert checker().filter(calls.FILTER, result, 2) is result


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param(FilterResult(Verdicts.feasible(3)), "answered 3 verdicts for 2", id="length"),
        pytest.param(
            FilterResult(Verdicts(np.asarray([0, 2], dtype=np.int32), (SUCCESS, Status.unschedulable()))),
            "a verdict group that does not exist",
            id="group above",
        ),
        pytest.param(
            FilterResult(Verdicts(np.asarray([0, -1], dtype=np.int32), (SUCCESS, Status.unschedulable()))),
            "a verdict group that does not exist",
            id="group below",
        ),
        pytest.param(
            FilterResult(Verdicts(np.zeros(2, dtype=np.int32), (Status.unschedulable(),))),
            "not grouped as Verdicts says",
            id="no success first",
        ),
        pytest.param(
            FilterResult(Verdicts.feasible(2), int64(1, 2, 3)), "answered 3 scores for 2", id="early length"
        ),
        pytest.param(
            FilterResult(Verdicts.feasible(2), int64(1, 2), skip_score=True),
            "together with skip_score",
            id="early and skip",
        ),
    ],
)
def test_bad_filter_answers_are_violations(result: FilterResult, words: str) -> None:
    with pytest.raises(PluginProtocolError, match=words):
        checker().filter(calls.FILTER, result, 2)


def test_early_scores_that_depend_on_the_candidates_are_a_violation() -> None:
    result = FilterResult(Verdicts.feasible(2), int64(1, 2))
    with pytest.raises(PluginProtocolError, match="early scores with normalization PLUGIN"):
        checker(ScoreNormalization.PLUGIN).filter(calls.FILTER, result, 2)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param(PreFilterResult(early_scores=int64(1)), "answered 1 scores for 2", id="length"),
        pytest.param(
            PreFilterResult(early_scores=int64(1, 2), skip_score=True), "together with skip_score", id="skip"
        ),
    ],
)
def test_bad_scores_that_come_with_pre_filter_are_violations(result: PreFilterResult, words: str) -> None:
    with pytest.raises(PluginProtocolError, match=words):
        checker().pre_filter(calls.PRE_FILTER, result, 2)
    with pytest.raises(PluginProtocolError, match="early scores with normalization RPC"):
        checker(ScoreNormalization.RPC).pre_filter(
            calls.PRE_FILTER, PreFilterResult(early_scores=int64(1, 2)), 2
        )


@pytest.mark.parametrize("code", [Code.WAIT, Code.SKIP])
def test_code_without_meaning_at_filter_becomes_an_error_with_its_reasons(code: Code) -> None:
    verdicts = Verdicts.all(2, Status(code, ("why",)))
    got = checker().filter(calls.FILTER, FilterResult(verdicts), 2).verdicts.to_list()
    named = f'plugin "Demo" answered {code.kube_name}, which has no meaning at Filter'
    assert got == [Status(Code.ERROR, (named, "why"))] * 2


def test_code_without_meaning_and_without_reasons_says_what_is_wrong() -> None:
    got = checker().pre_filter(calls.PRE_FILTER, PreFilterResult(Status(Code.PENDING)), 2)
    assert got.status == Status.error('plugin "Demo" answered Pending, which has no meaning at PreFilter')


def test_unknown_code_is_a_violation() -> None:
    status: Any = Status(99)  # type: ignore[arg-type]  # what a broken plugin may build
    with pytest.raises(PluginProtocolError, match="unknown code 99"):
        checker().pre_score(calls.PRE_SCORE, status, range(2))


@pytest.mark.parametrize("scores", [int64(0, 101), int64(-1, 5)])
def test_final_score_out_of_range_is_refused_in_kube_schedulers_words(scores: Any) -> None:
    wrong = 101 if 101 in scores else -1
    with pytest.raises(ScoreRangeError) as caught:
        checker().final_scores(calls.SCORE, scores)
    assert caught.value.text == (
        f'plugin "Demo" returns an invalid score {wrong}, it should in the range of [0, 100]'
        " after normalizing"
    )


@pytest.mark.parametrize("is_view", [False, True], ids=["writeable", "view"])
def test_scores_that_can_change_are_checked_each_time(is_view: bool) -> None:
    checks, memory = checker(), int64(0, 100)
    scores = memory
    if is_view:
        scores = memory[:]
        scores.flags.writeable = False
    assert checks.final_scores(calls.SCORE, scores) is scores
    memory[1] = 101
    with pytest.raises(ScoreRangeError, match="101"):
        checks.final_scores(calls.SCORE, scores)


def test_other_scores_after_sound_ones_are_checked() -> None:
    checks, sound, wrong = checker(), int64(0, 100), int64(0, 101)
    for scores in (sound, wrong):
        scores.flags.writeable = False
    for _ in range(2):
        assert checks.final_scores(calls.SCORE, sound) is sound
        with pytest.raises(ScoreRangeError, match="101"):
            checks.final_scores(calls.SCORE, wrong)


@pytest.mark.parametrize(
    "scores", [np.asarray([0.5, 1.0]), np.zeros((2, 2), dtype=np.int64), [1, 2]], ids=["float", "2d", "list"]
)
def test_scores_that_are_not_one_row_of_integers_are_a_violation(scores: Any) -> None:
    with pytest.raises(PluginProtocolError, match="one row of integers"):
        checker().raw_scores(calls.SCORE, scores, 2)


# --- PostFilter --------------------------------------------------------------------------------------


def victim(name: str, uid: str) -> ObjectRef:
    return ObjectRef(namespace="default", name=name, uid=uid)


def test_nomination_with_victims_of_lower_priority_passes() -> None:
    result = PostFilterResult(SUCCESS, "n1", victims=(victim("low", "uid-low"),))
    assert checker().post_filter(calls.POST_FILTER, result, POD) is result


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param(PostFilterResult(SUCCESS), "without a nominated node", id="no node"),
        pytest.param(PostFilterResult(SUCCESS, "n9"), "unknown node 'n9'", id="unknown node"),
        pytest.param(
            PostFilterResult(SUCCESS, "n1", clear_nomination=True), "cleared the nomination", id="both"
        ),
        pytest.param(
            PostFilterResult(SUCCESS, "n1", victims=(victim("high", "uid-high"),)),
            "default/high of priority 100",
            id="victim of higher priority",
        ),
        pytest.param(
            PostFilterResult(SUCCESS, "n2", victims=(victim("low", "uid-low"),)),
            "default/low, which is not on node 'n2'",
            id="victim elsewhere",
        ),
        pytest.param(
            PostFilterResult(Status.unschedulable(), victims=(victim("low", "uid-low"),)),
            "without a nominated node",
            id="victims without node",
        ),
    ],
)
def test_bad_post_filter_answers_are_violations(result: PostFilterResult, words: str) -> None:
    with pytest.raises(PluginProtocolError, match=words):
        checker().post_filter(calls.POST_FILTER, result, POD)


# --- decisions -----------------------------------------------------------------------------------------


def test_no_decision_is_a_violation_where_one_is_due() -> None:
    check = checker()
    for ask in (
        lambda: check.reserve(calls.RESERVE, Reserved(None)),
        lambda: check.permit(calls.PERMIT, None),
        lambda: check.pre_bind(calls.PRE_BIND, None, POD),
        lambda: check.bind(calls.BIND, None),
    ):
        with pytest.raises(PluginProtocolError, match="did not decide"):
            ask()


@pytest.mark.parametrize(
    ("wished_s", "want_s"), [(None, 900.0), (5.0, 5.0), (9999.0, 900.0), (0.0, 0.0), (-1.0, 0.0)]
)
def test_permit_wait_is_clamped_to_a_quarter_of_an_hour(wished_s: float | None, want_s: float) -> None:
    assert checker().permit(calls.PERMIT, PermitResult.wait(wished_s)).wait_timeout_s == want_s


@pytest.mark.parametrize(("wished_s", "want_s"), [(None, None), (5.0, 5.0), (1e18, 600.0), (-1e18, 0.0)])
def test_wait_for_the_next_round_of_pre_bind_is_clamped_to_the_longest_deadline(
    wished_s: float | None, want_s: float | None
) -> None:
    result = PreBindResult(SUCCESS, ask_again_after_s=wished_s)
    assert checker().pre_bind(calls.PRE_BIND, result, POD).ask_again_after_s == want_s


def test_wait_is_legal_at_permit_alone_and_skip_at_bind_alone() -> None:
    check = checker()
    reserved = check.reserve(calls.RESERVE, Reserved(Status(Code.WAIT))).status
    assert reserved is not None and reserved.code is Code.ERROR
    assert check.permit(calls.PERMIT, PermitResult(Status(Code.SKIP))).status.code is Code.ERROR
    assert check.pre_bind(calls.PRE_BIND, PreBindResult(Status(Code.SKIP)), POD).status.code is Code.ERROR
    assert check.bind(calls.BIND, BindResult(Status(Code.SKIP))).status.code is Code.SKIP


def test_only_a_plugin_with_pre_bind_may_answer_it_early() -> None:
    early = Reserved(SUCCESS, pre_bind=lambda: None)
    with pytest.raises(PluginProtocolError, match="answered PreBind early, in which it does not take part"):
        checker().reserve(calls.RESERVE, early)
    check = checker()
    points = (ExtensionPoint.RESERVE, ExtensionPoint.PRE_BIND)
    # What it answered is not read before it is due.
    check = replace(check, descriptor=replace(check.descriptor, points=points))
    assert check.reserve(calls.RESERVE, early) is early


@pytest.mark.parametrize("code", [Code.SKIP, Code.UNSCHEDULABLE, Code.ERROR], ids=lambda code: code.name)
def test_early_answer_is_not_judged_where_reserve_did_not_succeed(code: Code) -> None:
    # The host does not read the early answer of a served plugin then.
    early = Reserved(Status(code), pre_bind=lambda: None)
    assert checker().reserve(calls.RESERVE, early) is early


def test_pre_flight_keeps_codes_that_the_framework_has_words_for() -> None:
    result = PreFlightResult(Status.unschedulable("x"))
    assert checker().pre_bind_pre_flight(calls.PRE_BIND_PRE_FLIGHT, result) is result


# --- patches ---------------------------------------------------------------------------------------------


def patch(resource: str = "example.com/widgets", body: Any = None, **ref: str) -> ObjectPatch:
    return ObjectPatch(
        resource=resource,
        ref=ObjectRef(**{"namespace": "default", "name": "w", "uid": "", **ref}),
        merge_patch={"spec": {"size": 1}} if body is None else body,
    )


def nested(levels: int) -> Any:
    """Objects and lists in turn."""
    body: Any = 1
    for level in range(levels):
        body = {"a": body} if level % 2 == (levels - 1) % 2 else [body]
    return body


def test_patch_of_a_hundred_levels_passes() -> None:
    result = PreBindResult(SUCCESS, (patch(body=nested(100)),))
    assert checker().pre_bind(calls.PRE_BIND, result, POD) is result


def test_patch_on_a_declared_kind_and_on_the_own_pod_pass() -> None:
    own = patch("pods", {"metadata": {"annotations": {"a": "b"}}}, name="web", uid="uid-web")
    result = PreBindResult(SUCCESS, (patch(), own))
    assert checker().pre_bind(calls.PRE_BIND, result, POD) is result


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param(patch("persistentvolumes"), "did not declare", id="undeclared kind"),
        pytest.param(patch("pods", name="other"), "not the pod of the cycle", id="another pod"),
        pytest.param(patch("pods", name="web", uid="x"), "not the pod of the cycle", id="earlier pod"),
        pytest.param(patch(name=""), "without a name", id="no name"),
        pytest.param(patch(body={"metadata": {"uid": "x"}}), "metadata.uid", id="uid"),
        pytest.param(patch(body={"metadata": {"name": None}}), "metadata.name", id="name"),
        pytest.param(patch(body={"metadata": {"namespace": "x"}}), "metadata.namespace", id="namespace"),
        pytest.param(
            patch(body={"metadata": {"resourceVersion": "1"}}), "metadata.resourceVersion", id="version"
        ),
        pytest.param(patch(body={"metadata": None}), "replaced the metadata", id="all metadata"),
        pytest.param(patch(body=[1]), "not a JSON object", id="list"),
        pytest.param(patch(body=nested(101)), "more than 100 levels", id="deep"),
    ],
)
def test_bad_patches_are_violations(bad: ObjectPatch, words: str) -> None:
    with pytest.raises(PluginProtocolError, match=words):
        checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (bad,)), POD)


@pytest.mark.parametrize("action", [PatchAction.CREATE, PatchAction.DELETE], ids=lambda action: action.name)
def test_the_own_pod_is_only_patched(action: PatchAction) -> None:
    bad = replace(patch("pods", {}, name="web", uid="uid-web"), action=action)
    with pytest.raises(PluginProtocolError, match=f"would {action.name.lower()} pods default/web"):
        checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (bad,)), POD)
    declared = replace(patch(), action=action)
    assert checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (declared,)), POD).patches == (declared,)


def test_body_of_a_patch_with_an_unknown_action_is_not_judged() -> None:
    later = replace(patch(body={"metadata": {"name": "other"}}), action=PatchAction.UNKNOWN)
    assert checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (later,)), POD).patches == (later,)


def test_patches_of_post_filter_are_checked_alike() -> None:
    no_help = Status.unschedulable("not yet")
    good = PostFilterResult(no_help, patches=(patch(),))
    assert checker().post_filter(calls.POST_FILTER, good, POD) is good
    with pytest.raises(PluginProtocolError, match="did not declare at PostFilter"):
        checker().post_filter(
            calls.POST_FILTER, PostFilterResult(no_help, patches=(patch("persistentvolumes"),)), POD
        )


def test_patch_of_an_unknown_subresource_is_a_violation() -> None:
    bad = ObjectPatch(
        resource="example.com/widgets",
        ref=ObjectRef(namespace="", name="w", uid=""),
        merge_patch={},
        subresource="scale",
    )
    with pytest.raises(PluginProtocolError, match="subresource 'scale'"):
        checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (bad,)), POD)


def test_more_than_64_patches_are_a_violation() -> None:
    with pytest.raises(PluginProtocolError, match="65 patches"):
        checker().pre_bind(calls.PRE_BIND, PreBindResult(SUCCESS, (patch(),) * 65), POD)


# --- the queue ---------------------------------------------------------------------------------------------


def test_lists_of_the_wrong_length_are_violations() -> None:
    check = checker()
    for ask in (
        lambda: check.pre_enqueue(calls.PRE_ENQUEUE, [SUCCESS], 2),
        lambda: check.sort_keys(calls.SORT_KEYS, [b"a"], 2),
        lambda: check.queueing_hints(calls.QUEUEING_HINTS, [True], 2),
    ):
        with pytest.raises(PluginProtocolError, match="for 2"):
            ask()


def test_sort_key_over_256_bytes_is_a_violation() -> None:
    assert checker().sort_keys(calls.SORT_KEYS, [b"x" * 256], 1) == [b"x" * 256]
    with pytest.raises(PluginProtocolError, match="257 bytes"):
        checker().sort_keys(calls.SORT_KEYS, [b"x" * 257], 1)


def test_token_over_4_kib_is_a_violation() -> None:
    checker().token(calls.RESERVE, b"x" * 4096)
    with pytest.raises(PluginProtocolError, match="4097 bytes"):
        checker().token(calls.RESERVE, b"x" * 4097)
