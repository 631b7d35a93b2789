"""What an attempt says about itself afterwards."""

from __future__ import annotations

from berth_host.attempt.account import Account


def test_what_a_plugin_did_not_answer_is_one_sentence_for_each_reason() -> None:
    account = Account()
    for call in ("Filter", "Score", "Filter"):
        account.leave_out("Busy", call, "is not attached (required: false)")
    account.leave_out("Busy", "Permit", "did not answer within 250 ms (policy: Ignore)")
    assert account.omissions == [
        'without plugin "Busy" at Filter, Score: it is not attached (required: false)',
        'without plugin "Busy" at Permit: it did not answer within 250 ms (policy: Ignore)',
    ]


def test_notes_are_omissions_then_overruns_then_extenders() -> None:
    account, other = Account(), Account()
    account.pass_over("without http://e at filter (ignorable: true): refused")
    account.overruns.append('plugin "Slow" took 300 ms at Filter; its deadline is 250 ms')
    account.leave_out("Busy", "Score", "is not attached (required: false)")
    assert [note.split()[0] for note in account.notes] == ["without", "plugin", "without"]
    assert account.notes[2].startswith("without http://e")
    assert other.notes == []
