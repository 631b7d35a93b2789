"""`ExtenderServer`: serves one plugin over HTTP as a scheduler extender (extender/v1).

Requests of filter, prioritize and preempt run one at a time in a thread of their own, as methods of the
scheduling cycle do. Bind runs in several threads, as the binding cycle does. The event loop reads and writes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiohttp import web

from berth_sdk.clocks import monotonic_s
from berth_sdk.errors import BerthError, ObjectError, PluginArgsError, PluginDefinitionError
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult
from berth_sdk.runtime.descriptor import describe
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.runtime.raised import raised_text
from berth_sdk.serve.calls import InFlight
from berth_sdk.serve.cycles import CycleBook
from berth_sdk.serve.endings import Endings, MadePlugin
from berth_sdk.serve.extender import messages, plan
from berth_sdk.serve.extender.api_server import AccessError, ApiAccess, ApiError, ApiServer
from berth_sdk.serve.extender.asked import AnswerError, AskedPlugin, Call, Found
from berth_sdk.serve.extender.cluster_copy import ClusterCopy
from berth_sdk.serve.extender.connections import Connections, Quiet
from berth_sdk.serve.extender.handle import IN_BIND, ExtenderHandle
from berth_sdk.serve.extender.messages import BadRequestError, BindingArgs, NodeArgs, PreemptionArgs
from berth_sdk.serve.extender.plan import Plan
from berth_sdk.serve.extender.request_nodes import NodeCache, named
from berth_sdk.serve.extender.tls import ExtenderTls, ServerTls, names_in
from berth_sdk.serve.lanes import CallCancelledError, EventLoopThread
from berth_sdk.serve.served import DEFAULT_CONCURRENCY
from berth_sdk.serve.server import LEAST_CLOSE_S, ListenError
from berth_sdk.status import Code
from berth_sdk.wire.addresses import host_of, is_loopback

LOG: Final = logging.getLogger("berth_sdk.serve.extender")
MAX_BODY_BYTES: Final = 128 * 1024 * 1024
"""The largest request: about 20000 Node objects of a large cluster."""
MAX_NAMES_BODY_BYTES: Final = 16 * 1024 * 1024
"""The largest request of a scheduler with nodeCacheCapable."""
MAX_BINDING_BODY_BYTES: Final = 64 * 1024
"""The largest request of bind, which has four names."""
MAX_REQUESTS: Final = 8
"""Requests of the scheduling cycle that are read or run at the same time. A scheduler makes one at a time."""
DEFAULT_GRACE_S: Final = 5.0
_BACKLOG: Final = 512
_UNKNOWN_NODE: Final = "the extender does not know the node yet"
_ANY: Final = ("0.0.0.0", "::")
_KEEP_ALIVE_S: Final = 300.0
"""Seconds that an idle connection stays open: longer than in Go's client, which closes it after 90 s. On a
connection that the server closes first, a request would fail, because Go does not repeat a POST.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """The settings of an extender's server. `listen`: HOST:PORT, port 0: any free port.

    `api`, `tls`: None: the server has no API server, or no TLS.
    """

    listen: str
    args: Mapping[str, Any] = field(default_factory=dict)
    node_cache_capable: bool = False
    api: ApiAccess | None = None
    tls: ExtenderTls | None = None
    grace_s: float = DEFAULT_GRACE_S


class ExtenderServer:
    """One plugin behind HTTP. made -start-> serving -stop-> stopped. All methods run in one event loop."""

    def __init__(self, name: str, cls: type, settings: ExtenderSettings) -> None:
        """Make the plugin.

        Raises PluginDefinitionError for a plugin that cannot be an extender, PluginArgsError for its
        arguments, and ListenError, TlsError and AccessError for settings.
        """
        self._settings = settings
        self._host, self._port = _address(settings, has_bind=False)
        descriptor = describe(cls, name)
        self.plan = Plan.of(
            cls,
            descriptor,
            node_cache_capable=settings.node_cache_capable,
            has_api=settings.api is not None,
        )
        _address(settings, has_bind=plan.BIND in self.plan.verbs)
        if settings.api is not None:
            settings.api.check()
        self._tls = None if settings.tls is None else ServerTls(settings.tls)
        self.copy = ClusterCopy(descriptor.needs) if self.plan.keeps_copy else None
        self.cache = NodeCache(with_objects=any(need.kind.name == "NODE_OBJECT" for need in descriptor.needs))
        handle = cast("Handle", ExtenderHandle(None if self.copy is None else self.copy.snapshot))
        runtime = PluginRuntime(_made(cls, name, settings.args, handle), name=name, handle=handle)
        if runtime.descriptor != descriptor:
            raise PluginDefinitionError(
                f"{name} declares other needs with these arguments than in its class, which an extender"
                " cannot follow: declare all of them in the class"
            )
        self._loop_thread = EventLoopThread()
        self._plugin = AskedPlugin(runtime, self._loop_thread)
        self._made = MadePlugin(b"", runtime)
        self._scheduling = ThreadPoolExecutor(1, thread_name_prefix="berth-scheduling")
        self._binding = ThreadPoolExecutor(
            descriptor.max_concurrency or DEFAULT_CONCURRENCY, thread_name_prefix="berth-binding"
        )
        self._max_body_bytes = MAX_NAMES_BODY_BYTES if self.plan.node_cache_capable else MAX_BODY_BYTES
        self.in_flight = InFlight()
        self.waiting = 0
        """Requests of the scheduling cycle that are not answered yet."""
        self._runner: web.AppRunner | None = None
        self._connections: Connections | None = None
        self._malformed = Quiet()
        self._refused = Quiet()
        self._api: ApiServer | None = None
        self._follows: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Listen, begin to follow the cluster, and return the URL. Raises ListenError and AccessError."""
        if self._settings.api is not None:
            self._api = ApiServer(self._settings.api)
        if self._api is not None and self.copy is not None:
            self._follows = asyncio.create_task(self._api.follow(self.copy))
            self._follows.add_done_callback(_report)
        application = web.Application(client_max_size=self._max_body_bytes, middlewares=[self._checked])
        application.router.add_get("/healthz", self._healthz)
        verbs: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            plan.FILTER: self._filter,
            plan.PRIORITIZE: self._prioritize,
            plan.PREEMPT: self._preempt,
            plan.BIND: self._bind,
        }
        for verb in self.plan.verbs:
            application.router.add_post(f"/{verb}", verbs[verb])
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            logger=self._malformed.logger,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=self._settings.grace_s,
        )
        await self._runner.setup()
        try:
            listening = _bound(self._host, self._port)
        except OSError as err:
            await self.stop()
            listen = self._settings.listen
            raise ListenError(
                f"cannot listen at {listen}: {err.strerror or err}; is the address free?"
            ) from err
        port = listening.getsockname()[1]
        make: Any = self._runner.server
        self._connections = Connections(make, None if self._tls is None else self._tls.context)
        self._connections.start(listening)
        host = "HOST" if self._host in _ANY else self._host
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self._tls is None else 'https'}://{shown}:{port}"

    async def stop(self) -> bool:
        """Accept no new requests, wait for running ones, and close the plugin. Return False if a method of
        the plugin still runs; the plugin is not closed then.
        """
        ends_s = monotonic_s() + self._settings.grace_s
        if self._connections is not None:
            await self._connections.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._connections is not None:
            self._connections.close_all()
        if self._follows is not None:
            self._follows.cancel()
            await asyncio.wait({self._follows})
        if self._api is not None:
            await self._api.close()
        for pool in (self._scheduling, self._binding):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.in_flight.count == 0:
            endings = Endings(CycleBook(), self._loop_thread)
            limit_s = max(ends_s - monotonic_s(), LEAST_CLOSE_S)
            await asyncio.to_thread(endings.close_all, [self._made], limit_s)
        self._loop_thread.stop()
        return self.in_flight.count == 0

    def text(self, url: str) -> str:
        """Return what carries over, and the entry of KubeSchedulerConfiguration, as YAML."""
        tls = self._settings.tls
        return self.plan.text(
            url, has_tls=tls is not None, wants_client_certificate=bool(tls and tls.client_ca_file)
        )

    # --- HTTP ------------------------------------------------------------------------------------------

    @web.middleware
    async def _checked(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Check the client's certificate, and answer refused requests with their text."""
        assert self._connections is not None
        transport = request.transport
        if self._tls is not None and (why := self._tls.why_not(transport)):
            # The connection ends with this answer.
            answer = _text(401, f"the client's certificate {why}: connect again")
            answer.force_close()
            return answer
        wanted = () if self._settings.tls is None else self._settings.tls.client_names
        if wanted:
            names = names_in(None if transport is None else transport.get_extra_info("peercert"))
            if set(names).isdisjoint(wanted):
                shown = ", ".join(names) or "nobody"
                self._refused.tell("refused a client whose certificate names %s", shown)
                return _text(403, f"this extender does not answer a client whose certificate names {shown}")
        with self._connections.asked(request.protocol):
            return await self._answered(request, handler)

    async def _answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadRequestError as err:
            self._refused.tell("%s: bad request: %s", request.path, err)
            return _text(400, str(err))
        except web.HTTPRequestEntityTooLarge:
            is_bind = request.path == f"/{plan.BIND}"
            limit = MAX_BINDING_BODY_BYTES if is_bind else self._max_body_bytes
            self._refused.tell("%s: a request of more than %d bytes", request.path, limit)
            has_cure = not is_bind and not self.plan.node_cache_capable
            cure = ": use --node-cache-capable for so many nodes" if has_cure else ""
            return _text(413, f"the request has more than {limit} bytes{cure}")

    async def _healthz(self, _request: web.Request) -> web.Response:
        if self.copy is not None and not self.copy.is_synced:
            return _text(503, "the nodes and pods of the cluster are not listed yet")
        if self._follows is not None and self._follows.done():
            return _text(503, "the cluster is no longer followed, because of an internal error")
        return _text(200, "ok")

    async def _filter(self, request: web.Request) -> web.Response:
        return await self._scheduled(request, self._filtered)

    async def _prioritize(self, request: web.Request) -> web.Response:
        return await self._scheduled(request, self._prioritized)

    async def _preempt(self, request: web.Request) -> web.Response:
        return await self._scheduled(request, self._preempted)

    async def _scheduled(self, request: web.Request, answer: Callable[[Call, bytes], bytes]) -> web.Response:
        """Run a request of the scheduling cycle in its turn. A client that goes away leaves the queue."""
        if self.copy is not None and not self.copy.is_synced:
            return _text(503, "the nodes and pods of the cluster are not listed yet")
        if self.waiting >= MAX_REQUESTS:
            return _text(503, f"{MAX_REQUESTS} requests are being answered already")
        self.waiting += 1
        try:
            body = await request.read()
            return _json(await self._in_thread(self._scheduling, answer, body))
        except AnswerError as err:
            return _text(500, str(err))
        finally:
            self.waiting -= 1

    async def _in_thread(
        self, pool: ThreadPoolExecutor, answer: Callable[[Call, Any], Any], argument: Any
    ) -> Any:
        call = Call()

        def run() -> Any:
            with self.in_flight:
                return answer(call, argument)

        try:
            return await asyncio.get_running_loop().run_in_executor(pool, run)
        except asyncio.CancelledError:
            call.cancel()
            raise

    # --- the verbs, in the thread of the scheduling cycle ----------------------------------------------

    def _filtered(self, call: Call, body: bytes) -> bytes:
        args = messages.node_args(body, self.cache)
        try:
            found = self._found(args)
            verdicts = self._plugin_says("filter", lambda: self._plugin.filter(call, args.pod, found))
        except AnswerError as err:
            return messages.filter_error(str(err))
        by_name = dict(zip(found.candidates.names, verdicts.to_list(), strict=True))
        failed = dict.fromkeys(found.unknown, _UNKNOWN_NODE)
        unresolvable: dict[str, str] = {}
        for name, status in by_name.items():
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                unresolvable[name] = status.message
            elif not status.is_success:
                failed[name] = status.message
        passed = [name for name in args.names if name not in failed and name not in unresolvable]
        kept = set(passed)
        nodes = None
        if args.nodes is not None:
            nodes = [one.text for name, one in zip(args.names, args.nodes, strict=True) if name in kept]
        return messages.filter_result(passed, nodes, failed, unresolvable)

    def _prioritized(self, call: Call, body: bytes) -> bytes:
        args = messages.node_args(body, self.cache)
        found = self._found(args)
        scores = self._plugin_says("score", lambda: self._plugin.prioritize(call, args.pod, found))
        by_name = dict(zip(found.candidates.names, scores, strict=True))
        return messages.host_priorities(args.names, [by_name.get(name, 0) for name in args.names])

    def _preempted(self, call: Call, body: bytes) -> bytes:
        args = messages.preemption_args(body)
        found, victims = self._in_question(args)
        if found.unknown:
            cure = "" if self.copy is not None else f"; with {plan.API_FLAGS} it follows all nodes"
            LOG.warning("preempt leaves out nodes that are not known: %s%s", ", ".join(found.unknown), cure)
        kept = self._plugin_says(
            "filter_scenarios", lambda: self._plugin.preempt(call, args.pod, found, victims)
        )
        return messages.preemption_result({name: args.victims[name] for name in args.victims if name in kept})

    def _found(self, args: NodeArgs) -> Found:
        """Return the nodes of a request. Raises AnswerError for names where Node objects are needed."""
        if self.plan.names_only:
            return named(args.names)
        if self.copy is not None:
            return self.copy.find(args.names)
        if args.nodes is None:
            raise AnswerError(
                f"{self.plan.name} needs Node objects, and the request has names only: set nodeCacheCapable:"
                f" false for this extender, or start it with {plan.API_FLAGS}"
            )
        return self.cache.found(args.nodes)

    def _in_question(self, args: PreemptionArgs) -> tuple[Found, dict[str, Sequence[Pod]]]:
        """Return the nodes, and the victims on each. Raises AnswerError where nodes have to be known."""
        names = tuple(args.victims)
        if self.plan.names_only:
            return named(names), {
                name: one.pods or tuple(Pod(name="", namespace="", uid=uid) for uid in one.uids)
                for name, one in args.victims.items()
            }
        if self.copy is not None:
            found = self.copy.find(names)
            return found, {name: self.copy.pods_of(one.uids) for name, one in args.victims.items()}
        return self.cache.known(names), {name: one.pods or () for name, one in args.victims.items()}

    def _plugin_says(self, method: str, ask: Callable[[], Any]) -> Any:
        """Return the plugin's answer. Raises AnswerError, and logs the failure."""
        try:
            return ask()
        except CallCancelledError:
            raise
        except AnswerError as err:
            LOG.error("%s", err)
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as err:
            # SystemExit too: it would end only this thread, and leave the scheduler without an answer.
            name = self.plan.name
            LOG.exception("%s.%s failed", name, method)
            raise AnswerError(f"{name}.{method} raised {raised_text(err)}") from err

    # --- bind ------------------------------------------------------------------------------------------

    async def _bind(self, request: web.Request) -> web.Response:
        args = messages.binding_args(await request.clone(client_max_size=MAX_BINDING_BODY_BYTES).read())
        try:
            await self._bound(args)
        except (AnswerError, ApiError, AccessError, ObjectError) as err:
            LOG.error("pod %s/%s is not bound to node %s: %s", args.namespace, args.name, args.node, err)
            return _json(messages.binding_result(str(err)))
        return _json(messages.binding_result())

    async def _bound(self, args: BindingArgs) -> None:
        """Ask the plugin, and post the Binding where the plugin has not bound the pod itself."""
        if self._api is None:
            raise AnswerError("there is no access to the API server")
        pod = Pod.from_object(KubeObject("v1", "Pod", parsed=await self._api.pod(args.name, args.namespace)))
        if pod.uid != args.uid:
            raise AnswerError(f"pod {pod.key} has uid {pod.uid} now, not {args.uid}: it was replaced")
        result: BindResult = await self._in_thread(self._binding, self._asked_to_bind, (pod, args.node))
        if result.status.code is Code.SKIP or (result.status.is_success and result.host_binds):
            await self._api.bind(args)
        elif not result.status.is_success:
            raise AnswerError(result.status.message or f"{self.plan.name} failed at Bind")

    def _asked_to_bind(self, call: Call, about: tuple[Pod, str]) -> BindResult:
        token = IN_BIND.set(True)
        try:
            result: BindResult = self._plugin_says("bind", lambda: self._plugin.bind(call, *about))
        finally:
            IN_BIND.reset(token)
        return result


def _made(cls: type, name: str, args: Mapping[str, Any], handle: Handle) -> object:
    try:
        return make_plugin(cls, args, handle, name)
    except PluginArgsError as err:
        raise PluginArgsError(f"{name} refuses its arguments (--args): {err}") from None
    except BerthError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        raise PluginDefinitionError(f"{name}.__init__ raised {raised_text(err)}") from err


def _address(settings: ExtenderSettings, *, has_bind: bool) -> tuple[str, int]:
    """Return host and port. Raises ListenError for an address that strangers could use."""
    listen, tls = settings.listen, settings.tls
    host, port = host_of(listen), listen.rpartition(":")[2]
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ListenError(f"--extender {listen!r} is no address: write HOST:PORT, such as 127.0.0.1:8888")
    if is_loopback(host):
        return host, int(port)
    if tls is None:
        raise ListenError(
            f"{listen} can be reached from other machines, and would be served in plaintext: give --tls-cert"
            " and --tls-key, or listen on 127.0.0.1"
        )
    if has_bind and not tls.client_ca_file:
        raise ListenError(
            f"{listen} can be reached from other machines, and anybody could bind pods: give --tls-client-ca,"
            " or listen on 127.0.0.1"
        )
    return host, int(port)


def _bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, dualstack_ipv6=both, backlog=_BACKLOG)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (err := task.exception()) is not None:
        LOG.error("the cluster is no longer followed, restart the extender", exc_info=err)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _json(content: bytes) -> web.Response:
    return web.Response(body=content, content_type="application/json")
