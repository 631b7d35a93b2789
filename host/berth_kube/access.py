"""Checks at start that the API server answers, accepts the credentials and grants the rights we need.

Called by `process`, which exits on an AccessError because retrying would not help. An API server that
does not answer yet is waited for: it may start after its scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import ClientConnectorCertificateError, ClientConnectorSSLError
from berth_host.errors import HostError
from berth_host.errors.cluster import ClusterError, ForbiddenError, UnauthorizedError, UnavailableError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, sleep

from berth_kube.client import KubeClient
from berth_kube.resources import Resources

log = get_logger()

FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 8.0
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class AccessError(HostError):
    """The API server refuses this host. The text is one line that ends in the cure."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that RBAC may grant. `resource`: a plural, optionally followed by `/subresource`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        """The resource of the right: `leases.coordination.k8s.io in namespace kube-system`."""
        of_group = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{of_group} in namespace {self.namespace}" if self.namespace else of_group


def rights(
    resources: Collection[str], lease: tuple[str, str] | None = None, *, writes: bool = True
) -> Iterator[Right]:
    """Yield the rights that a scheduler needs to watch `resources`.

    `lease`: namespace and name of its Lease; None without leader election. `writes`: False for a shadow,
    which only reads.
    """
    for group, _, plural in sorted(resource.rpartition("/") for resource in resources):
        for verb in ("list", "watch"):
            yield Right(verb, group, plural)
    if not writes:
        return
    yield Right("create", "", "pods/binding")
    yield Right("patch", "", "pods/status")
    yield Right("delete", "", "pods")
    yield Right("create", "events.k8s.io", "events")
    yield Right("patch", "events.k8s.io", "events")
    if lease is not None:
        namespace, name = lease
        yield Right("create", "coordination.k8s.io", "leases", namespace)
        for verb in ("get", "update"):
            yield Right(verb, "coordination.k8s.io", "leases", namespace, name)


async def contact(client: KubeClient, clock: Clock) -> str:
    """Wait until the API server answers and return its version; "" if the version may not be read.

    Raises AccessError for an answer that retrying would not change.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            answer = await client.request("GET", "/version", resource="version", limited=False)
        except UnavailableError as err:
            if isinstance(err.__cause__, ClientConnectorCertificateError | ClientConnectorSSLError):
                raise AccessError(err.text) from err
            log.warning("cluster.unreachable", error=err.text, again_in_s=pause_s)
            await sleep(clock, pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)
        except ForbiddenError:
            return ""  # The credentials are valid; `check_lists` checks the rights.
        except ClusterError as err:
            raise refusal(err, client.host) from err
        else:
            return str(answer.get("gitVersion") or "")


async def check_lists(client: KubeClient, resources: Collection[str], wanted: Sequence[Right]) -> None:
    """Check that all of `resources` may be listed.

    Raises AccessError, which names all missing rights of `wanted`. Other errors are ignored here: the
    watches report them and retry.
    """
    known = Resources(client)
    answers = await asyncio.gather(
        *(_listed(client, known, name) for name in sorted(resources)), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, UnauthorizedError):
            raise refusal(answer, client.host) from answer
    for answer in answers:
        if isinstance(answer, ForbiddenError):
            raise await forbidden(client, answer, wanted) from answer


async def _listed(client: KubeClient, known: Resources, name: str) -> None:
    resource = await known.resolve(name)
    await client.request("GET", resource.path(), query={"limit": "1"}, resource=name, limited=False)


def refusal(err: ClusterError, host: str) -> AccessError:
    """Return the AccessError, with its cure, for an answer that retrying would not change."""
    if isinstance(err, UnauthorizedError):
        return AccessError(
            f"{host} does not accept the credentials ({err}): they are wrong or expired; "
            "renew the token or the client certificate of the kubeconfig"
        )
    return AccessError(f"{host}: {err}; is this the address of an API server?")


async def forbidden(client: KubeClient, err: ForbiddenError, wanted: Sequence[Right]) -> AccessError:
    """Return the AccessError for the answer `err`; it names all missing rights of `wanted`."""
    reviews = await asyncio.gather(*(_is_granted(client, right) for right in wanted))
    missing: dict[str, list[str]] = {}
    for right, granted in zip(wanted, reviews, strict=True):
        if not granted:
            missing.setdefault(right.place, []).append(right.verb)
    texts = [f"{', '.join(verbs)} {place}" for place, verbs in missing.items()]
    what = f"missing RBAC rights: {'; '.join(texts)} ({err})" if texts else f"missing RBAC rights: {err}"
    return AccessError(f"{what}; grant them with a ClusterRole and a binding, such as system:kube-scheduler")


async def _is_granted(client: KubeClient, right: Right) -> bool:
    """Return True if RBAC grants the right, or if the review fails, so that only known gaps are reported."""
    plural, _, subresource = right.resource.partition("/")
    attributes: Mapping[str, Any] = {
        "verb": right.verb,
        "group": right.group,
        "resource": plural,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    try:
        answer = await client.request("POST", _REVIEWS, body=review, limited=False)
    except ClusterError:
        return True
    return bool((answer.get("status") or {}).get("allowed"))
