"""The kit's cases about calls of HandleService: the token, and the names in message and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk.conformance.handle_double import HandleDouble, handle_double
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc
from berth_sdk.plugin.v1 import identity_pb2 as identity
from support.conforming_plugin import ConformingPlugin
from support.kit import failures, report_of, result_of
from support.waiting import PATIENCE_S

CASES = ("handle.calls", "handle.metadata", "reserve.answer")


class Calls(ConformingPlugin):
    """Lists the waiting pods at each Reserve."""

    fields: ClassVar[dict[str, Any]] = {"handle_client": True}

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = identity.HandleEndpoint()

    def Configure(self, request: Any) -> Any:  # noqa: N802
        self.endpoint = request.handle
        return super().Configure(request)

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        with grpc.insecure_channel(self.endpoint.target) as channel:
            host = handle_pb2_grpc.HandleServiceStub(channel)
            asked = handle_pb2.ListWaitingPodsRequest(plugin=self.message_name())
            try:
                list(host.ListWaitingPods(asked, metadata=tuple(self.metadata()), timeout=PATIENCE_S))
            except grpc.RpcError as err:
                failed: Any = err
                assert failed.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED)
        return super().Reserve(request)

    def message_name(self) -> str:
        return "Kit"

    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.endpoint.token}"), ("berth-plugin", "Kit")]


class NamesItsAttachment(Calls):
    def metadata(self) -> list[tuple[str, str]]:
        return [*super().metadata(), ("berth-attachment-id", self.attachment_id)]


class NoToken(Calls):
    def metadata(self) -> list[tuple[str, str]]:
        return [("berth-plugin", "Kit")]


class NoMetadata(Calls):
    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.endpoint.token}")]


class AnotherPlugin(Calls):
    def metadata(self) -> list[tuple[str, str]]:
        return [*super().metadata()[:1], ("berth-plugin", "Other")]


class AnotherAttachment(Calls):
    def metadata(self) -> list[tuple[str, str]]:
        return [*super().metadata(), ("berth-attachment-id", "an-earlier-one")]


class NamesNobody(Calls):
    def message_name(self) -> str:
        return ""

    def metadata(self) -> list[tuple[str, str]]:
        return super().metadata()[:1]


@pytest.fixture
def double() -> Iterator[HandleDouble]:
    with handle_double() as found:
        yield found


@pytest.mark.parametrize("plugin", [Calls, NamesItsAttachment], ids=lambda plugin: plugin.__name__)
def test_kit_passes_calls_with_token_and_names(
    plugin: type[Calls], double: HandleDouble, tmp_path: Path
) -> None:
    report = report_of(plugin(), tmp_path, "binding", *CASES, double=double)
    assert failures(report) == {}
    assert result_of(report, "handle.metadata") == ("pass", "")


@pytest.mark.parametrize(
    ("plugin", "case_id", "detail"),
    [
        (NoToken, "handle.calls", "without `authorization: Bearer TOKEN`"),
        (NamesNobody, "handle.calls", "ListWaitingPods names no plugin"),
        (NoMetadata, "handle.metadata", "ListWaitingPods comes without the metadata `berth-plugin`"),
        (
            AnotherPlugin,
            "handle.metadata",
            "berth-plugin names 'Other', and plugin of the request names 'Kit'",
        ),
        (
            AnotherAttachment,
            "handle.metadata",
            "`berth-attachment-id` 'an-earlier-one', which is no attachment",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_calls_without_token_or_names(
    plugin: type[Calls], case_id: str, detail: str, double: HandleDouble, tmp_path: Path
) -> None:
    found = failures(report_of(plugin(), tmp_path, "binding", *CASES, double=double))
    assert list(found) == [case_id]
    assert detail in found[case_id]


def test_a_plugin_that_does_not_call_is_skipped(double: HandleDouble, tmp_path: Path) -> None:
    report = report_of(ConformingPlugin(), tmp_path, "binding", *CASES, double=double)
    assert result_of(report, "handle.metadata") == ("skip", "the plugin does not call HandleService")
