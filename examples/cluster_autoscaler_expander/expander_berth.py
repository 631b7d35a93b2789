"""The way to berth: its query service, at one or several replicas, with TLS and a token."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.query.v1 import query_pb2, query_pb2_grpc
from expander_options import Option, RefusedError, Tried

_FALLBACK: Final = "cluster-autoscaler goes on with its next expander"
_TEMPLATE: Final = "new"
_STANDBY: Final = grpc.StatusCode.FAILED_PRECONDITION
_REPLICAS: Final = 5
"""The most replicas behind one name that are asked until one of them leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach berth. `addresses`: HOST:PORT of a replica, or of a name with the addresses of several.
    `ca`: PEM; None: without TLS.

    `token_file`: read for each question, as tokens of service accounts are replaced; None: no token. `name`:
    the name in the certificate, if it is another one than the host's.
    """

    addresses: Sequence[str]
    ca: bytes | None = None
    token_file: Path | None = None
    name: str = ""


class Berth:
    """The query service of berth's replicas: the one that answered last is asked first."""

    def __init__(self, access: Access, *, scheduler_name: str = "", node_pods: Sequence[bytes] = ()) -> None:
        """Open no connection yet. `scheduler_name`: the profile for all pods; "": each pod's own.
        `node_pods`: pods that each new node has from the start, as JSON.
        """
        self._access = access
        self._scheduler_name = scheduler_name
        self._node_pods = node_pods
        self._channels = {address: _channel(address, access) for address in access.addresses}
        self._first = access.addresses[0]

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def try_option(self, option: Option, timeout_s: float) -> Tried:
        """Ask where the option's pods would go. Raises RefusedError."""
        template = query_pb2.NodeTemplate(
            name=_TEMPLATE, node=_as_json(option.node), count=option.count, pods=self._node_pods
        )
        request = query_pb2.SimulateRequest(
            pods=[_as_json(pod) for pod in option.pods],
            templates=[template],
            scheduler_name=self._scheduler_name,
            only_templates=True,
            fills_used_nodes=True,
        )
        answers = await self._simulate(request, timeout_s)
        placed = [option.pods[answer.index] for answer in answers if answer.template]
        rejected: dict[str, int] = {}
        for answer in answers:
            for rejection in (one for verdict in answer.verdicts for one in verdict.rejections):
                text = f"{rejection.plugin}: {rejection.reason}" if rejection.plugin else rejection.reason
                rejected[text] = rejected.get(text, 0) + 1
        reason = max(rejected, key=rejected.__getitem__, default="")
        return Tried(option=option, placed=placed, reason=reason)

    async def _simulate(
        self, request: query_pb2.SimulateRequest, timeout_s: float
    ) -> list[query_pb2.PodAnswer]:
        ends_s = time.monotonic() + timeout_s
        others = [address for address in self._access.addresses if address != self._first]
        problems: list[str] = []
        for address in (self._first, *others):
            stub = query_pb2_grpc.QueryServiceStub(self._channels[address])
            for _ in range(_REPLICAS):
                left_s = ends_s - time.monotonic()
                try:
                    call = stub.Simulate(request, timeout=left_s, metadata=self._metadata())
                    answers = [answer async for response in call for answer in response.pods]
                except grpc.aio.AioRpcError as err:
                    problem = f"{address}: {err.code().name}: {err.details()}"
                    if err.code() is _STANDBY:
                        continue  # the next call goes to the next replica behind the name
                    if err.code() is grpc.StatusCode.UNAVAILABLE:
                        break
                    raise _refused(address, err) from err
                self._first = address
                return answers
            problems.append(problem)
        cure = "check --berth, --berth-ca and that a berth scheduler with --query-secure-port leads"
        text = f"no berth answers ({'; '.join(problems)}); {_FALLBACK}: {cure}"
        raise RefusedError(grpc.StatusCode.UNAVAILABLE, text)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._access.token_file is None:
            return ()
        try:
            token = self._access.token_file.read_text().strip()
        except OSError as err:
            text = f"--berth-token-file {self._access.token_file}: {err.strerror}: mount the token there"
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, text) from err
        return (("authorization", f"Bearer {token}"),)


def _channel(address: str, access: Access) -> grpc.aio.Channel:
    # A berth that restarts is asked again soon: the autoscaler asks every ten seconds.
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # The chart's Service has the addresses of all replicas, and the leader alone answers.
        ("grpc.lb_policy_name", "round_robin"),
    ]
    if access.ca is None:
        return grpc.aio.insecure_channel(address, options=options)
    if access.name:
        options.append(("grpc.ssl_target_name_override", access.name))
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(access.ca), options=options)


def _refused(address: str, err: grpc.aio.AioRpcError) -> RefusedError:
    cures = {
        grpc.StatusCode.UNAUTHENTICATED: "check --berth-token-file",
        grpc.StatusCode.PERMISSION_DENIED: "bind a role with this right to the user of --berth-token-file",
        grpc.StatusCode.UNIMPLEMENTED: "that port has no berth.query.v1: give the one of --query-secure-port",
        grpc.StatusCode.DEADLINE_EXCEEDED: "fewer node groups or pods take less time",
    }
    cure = cures.get(err.code(), "")
    text = f"berth at {address}: {err.details()}" + (f": {cure}" if cure else "")
    return RefusedError(err.code(), f"{text}; {_FALLBACK}")


def _as_json(item: Pod | Node) -> bytes:
    return b"" if item.object is None else json.dumps(item.object.parsed).encode()
