"""The host's errors, in one tree. Errors of libraries are converted into these where they are caught.

HostError
├── ClusterError            the cluster refused a call, or could not be reached (errors/cluster.py)
│   ├── ConflictError       the object differs from the caller's version: read it again
│   ├── NotFoundError       the object does not exist
│   ├── GoneError           the resource version is too old: list again
│   ├── InvalidError        the request cannot succeed without a change
│   ├── UnauthorizedError   the credentials are not valid
│   ├── ForbiddenError      the credentials are valid, but lack the right
│   ├── TooManyRequestsError    the request was not done: retry later
│   └── UnavailableError    no answer: the outcome is unknown
│       └── TimedOutError   no answer in time
├── ClientConfigError       the configuration for the API server is missing or wrong (errors/cluster.py)
├── EndpointError           the secure port cannot be opened (errors/endpoints.py)
├── ReviewError             the API server could not review a user (errors/endpoints.py)
├── ManifestError           files that do not describe a cluster (errors/manifests.py)
├── PluginError             a plugin's call gave no usable answer (errors/plugins.py)
├── CycleRestartError       a plugin lost its state of the cycle (errors/plugins.py)
├── ExtenderError           an HTTP extender gave no usable answer (errors/extenders.py)
├── DuplicatePluginError    two plugins have the same name (errors/plugins.py)
├── PluginLoadError         a plugin cannot be loaded, or refuses its arguments (errors/plugins.py)
├── CacheError              a step that the cache's state does not allow (errors/state.py)
└── InvariantError          an internal contradiction: a bug (errors/state.py)

`config` has its own tree, in config/errors.py.
"""

from __future__ import annotations


class HostError(Exception):
    """The base class of all errors that the host raises on purpose."""
