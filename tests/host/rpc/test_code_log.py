"""Status codes that are read as ERROR: one line in the log for each plugin and code, a sentence each time."""

from __future__ import annotations

from berth_host.rpc.code_log import MAX_TOLD, CodeLog
from structlog.testing import capture_logs


def test_each_code_of_a_plugin_is_logged_once_and_named_every_time() -> None:
    log = CodeLog()
    with capture_logs() as lines:
        for rpc in ("Filter", "Reserve"):
            assert log.unknown("Demo", rpc, 99) == 'plugin "Demo" answered the unknown status code 99'
            assert log.misplaced("Demo", rpc, "Wait") == (
                f'plugin "Demo" answered Wait, which has no meaning at {rpc}'
            )
        log.unknown("Other", "Filter", 99)
    assert [(line["plugin"], line["call"], line["code"]) for line in lines] == [
        ("Demo", "Filter", "99"),
        ("Demo", "Filter", "Wait"),
        ("Other", "Filter", "99"),
    ]
    assert {line["event"] for line in lines} == {"plugin.code_read_as_error"}


def test_plugin_that_answers_another_code_each_time_does_not_flood_the_log() -> None:
    log = CodeLog()
    with capture_logs() as lines:
        for number in range(10 * MAX_TOLD):
            assert str(100 + number) in log.unknown("Demo", "Filter", 100 + number)
        log.unknown("Other", "Filter", 99)
    assert [line["plugin"] for line in lines] == ["Demo"] * MAX_TOLD + ["Other"]
