"""The host's errors, one tree; a leaf package. Foreign errors are turned into these at the edge.

HostError
├── ClusterError            the cluster refused a call, or could not be asked (errors/cluster.py)
│   ├── ConflictError       the object differs from the caller's version: read it again
│   ├── NotFoundError       there is no such object (any more)
│   ├── GoneError           the resource version is too old: list again
│   ├── InvalidError        the request can never succeed as it is
│   ├── UnauthorizedError   the credentials are not good
│   ├── ForbiddenError      the credentials are good, and not enough
│   ├── TooManyRequestsError    not done: come back later
│   └── UnavailableError    no answer: the outcome is unknown
│       └── TimedOutError   no answer in time
├── ClientConfigError       how to reach the API server is missing or wrong (errors/cluster.py)
├── EndpointError           the secure port cannot be opened (errors/endpoints.py)
├── ReviewError             the API server could not be asked about a user (errors/endpoints.py)
├── ManifestError           files that do not describe a cluster (errors/manifests.py)
├── PluginError             a plugin's call gave no usable answer (errors/plugins.py)
├── CycleRestartError       a plugin lost its state of the cycle (errors/plugins.py)
├── DuplicatePluginError    two plugins have the same name (errors/plugins.py)
├── PluginLoadError         a plugin cannot be loaded, or does not accept its arguments (errors/plugins.py)
├── CacheError              a step that the cache's state does not allow (errors/state.py)
└── InvariantError          two things that must agree contradict each other (errors/state.py)

`config` has a tree of its own beside its decoder (config/errors.py).
"""

from __future__ import annotations


class HostError(Exception):
    """Root of all errors that the host raises on purpose."""
