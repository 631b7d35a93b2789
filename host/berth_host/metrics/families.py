"""Every metric family: name, type, stability, labels, buckets. kube-scheduler's families, then berth's own.

Names, labels and buckets are the same as on kube-scheduler's `/metrics`, so dashboards for kube-scheduler
work. `group_families` has those of pod groups. The table is of kube-scheduler 1.37; `config.emulation` has
what differs in older versions. Source: kube-scheduler `metrics/metrics.go`, component-base
`metrics/prometheus/restclient`, v1.37; 1.36's were recorded from its `/metrics`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from berth_host.metrics.family import Family, counter, exponential, gauge, histogram
from berth_host.metrics.group_families import GROUP_FAMILIES

_ATTEMPT_S: Final = exponential(0.001, 2, 15)
_POINT_S: Final = exponential(0.0001, 2, 12)
_CALL_S: Final = exponential(0.00001, 1.5, 20)
_WAIT_S: Final = exponential(0.01, 2, 20)
_BATCH_S: Final = exponential(0.00001, 2, 12)
_DEVICES_S: Final = exponential(0.1, 2, 14)
_REST_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_REST_BYTES: Final = (64.0, 256.0, 512.0, *exponential(1024.0, 4, 8))
_CERTIFICATE_AGE_S: Final = tuple(
    float(age)
    for age in (600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000)
)


MASTER_STATUS: Final = gauge(
    "leader_election_master_status", "ALPHA", "name", "1 on the replica that leads, otherwise 0."
)
SLOW_PATH: Final = counter(
    "leader_election_slowpath_total", "ALPHA", "name", "Renewals of the lock that needed a read before."
)
CERTIFICATE_AGE: Final = histogram(
    "rest_client_exec_plugin_certificate_rotation_age",
    "ALPHA",
    "",
    _CERTIFICATE_AGE_S,
    "Age in seconds of a client certificate from an exec plugin when it was replaced.",
)
EXEC_TTL: Final = gauge(
    "rest_client_exec_plugin_ttl_seconds",
    "ALPHA",
    "",
    "Seconds until the client certificate of the exec plugin expires; +Inf without one.",
)
RATE_LIMITER: Final = histogram(
    "rest_client_rate_limiter_duration_seconds",
    "ALPHA",
    "host verb",
    _REST_S,
    "Seconds that API requests waited for the client's own rate limit.",
)
REQUEST_DURATION: Final = histogram(
    "rest_client_request_duration_seconds", "ALPHA", "host verb", _REST_S, "Seconds that API requests took."
)
REQUEST_RETRIES: Final = counter(
    "rest_client_request_retries_total", "ALPHA", "code host verb", "API requests that were sent again."
)
REQUEST_SIZE: Final = histogram(
    "rest_client_request_size_bytes", "ALPHA", "host verb", _REST_BYTES, "Size of API request bodies."
)
REQUESTS: Final = counter(
    "rest_client_requests_total", "ALPHA", "code host method", "API requests by answer and method."
)
RESPONSE_SIZE: Final = histogram(
    "rest_client_response_size_bytes", "ALPHA", "host verb", _REST_BYTES, "Size of API answers."
)
TRANSPORTS: Final = gauge(
    "rest_client_transport_cache_entries", "ALPHA", "", "Sessions with the API server that are open."
)
TRANSPORT_ROTATIONS: Final = counter(
    "rest_client_transport_cert_rotation_gc_calls_total",
    "ALPHA",
    "",
    "Clean-ups after client certificates that were replaced.",
)
TRANSPORT_CALLS: Final = counter(
    "rest_client_transport_create_calls_total",
    "ALPHA",
    "result",
    "Sessions asked for, by whether there was one.",
)
ASYNC_CALL_DURATION: Final = histogram(
    "scheduler_async_api_call_execution_duration_seconds",
    "ALPHA",
    "call_type result",
    _ATTEMPT_S,
    "Seconds that one API call of the asynchronous dispatcher took.",
    "SchedulerAsyncAPICalls",
)
ASYNC_CALLS: Final = counter(
    "scheduler_async_api_call_execution_total",
    "ALPHA",
    "call_type result",
    "API calls of the asynchronous dispatcher.",
    "SchedulerAsyncAPICalls",
)
BATCH_ATTEMPTS: Final = counter(
    "scheduler_batch_attempts_total",
    "ALPHA",
    "profile result",
    "Attempts by the result of the opportunistic batch; berth has none, so no attempt has a hint.",
)
BATCH_RESCORES: Final = counter(
    "scheduler_batch_rescore_attempts_total",
    "ALPHA",
    "profile",
    "Times that the opportunistic batch scored a node again.",
)
BATCH_RESCORE: Final = histogram(
    "scheduler_batch_rescore_duration_seconds",
    "ALPHA",
    "profile",
    _BATCH_S,
    "Seconds that the opportunistic batch took to score a node again.",
)
BATCH_FLUSHED: Final = counter(
    "scheduler_batch_cache_flushed_total",
    "ALPHA",
    "profile reason",
    "Times that the opportunistic batch was dropped.",
)
CACHE_SIZE: Final = gauge(
    "scheduler_cache_size", "ALPHA", "type", "Nodes, pods and assumed pods in the scheduler's cache."
)
DEVICE_ALLOCATIONS: Final = counter(
    "scheduler_dra_bindingconditions_allocations_total",
    "ALPHA",
    "driver profile status",
    "Allocations of devices with binding conditions.",
)
DEVICE_WAIT: Final = histogram(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "ALPHA",
    "driver profile status",
    _DEVICES_S,
    "Seconds that PreBind waited for binding conditions of devices.",
)
EVENT_HANDLING: Final = histogram(
    "scheduler_event_handling_duration_seconds",
    "ALPHA",
    "event",
    _POINT_S,
    "Seconds that the handling of one watch event took.",
)
EXTENSION_POINT: Final = histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "STABLE",
    "extension_point profile status",
    _POINT_S,
    "Seconds that all plugins of one extension point took together.",
)
NODE_HINT: Final = histogram(
    "scheduler_get_node_hint_duration_seconds",
    "ALPHA",
    "hinted profile",
    _BATCH_S,
    "Seconds that the opportunistic batch took to name a node.",
)
GOROUTINES: Final = gauge(
    "scheduler_goroutines", "BETA", "operation", "Tasks that run now, by what they do: binding cycles."
)
IN_FLIGHT_EVENTS: Final = gauge(
    "scheduler_inflight_events",
    "ALPHA",
    "event",
    "Events that are kept for pods in flight; PodPopped: these pods.",
)
PENDING_ASYNC_CALLS: Final = gauge(
    "scheduler_pending_async_api_calls",
    "ALPHA",
    "call_type",
    "API calls that wait for the asynchronous dispatcher.",
    "SchedulerAsyncAPICalls",
)
PENDING_PODS: Final = gauge(
    "scheduler_pending_pods",
    "STABLE",
    "queue",
    "Pending pods: in activeQ, in backoffQ, unschedulable, gated; members of a pod group that is incomplete,"
    " or that is being scheduled (pending).",
)
QUEUED_ENTITIES: Final = gauge(
    "scheduler_queued_entities",
    "ALPHA",
    "queue entity",
    "Entities in the queue: pod groups, and pods of no group.",
)
PERMIT_WAIT: Final = histogram(
    "scheduler_permit_wait_duration_seconds",
    "BETA",
    "result",
    _ATTEMPT_S,
    "Seconds that pods waited at Permit, by how the wait ended.",
)
PLUGIN_EVALUATIONS: Final = counter(
    "scheduler_plugin_evaluation_total",
    "BETA",
    "extension_point plugin profile",
    "Times that a plugin took part at PreFilter, Filter, PreScore or Score: once per attempt, for all nodes.",
)
PLUGIN_EXECUTION: Final = histogram(
    "scheduler_plugin_execution_duration_seconds",
    "BETA",
    "extension_point plugin status",
    _CALL_S,
    "Seconds that one plugin took for one call, in about one cycle of ten.",
)
AFTER_FLUSH: Final = counter(
    "scheduler_pod_scheduled_after_flush_total",
    "ALPHA",
    "",
    "Pods that were scheduled after the periodic flush of unschedulable pods, without an event that helps.",
)
POD_ATTEMPTS: Final = histogram(
    "scheduler_pod_scheduling_attempts",
    "STABLE",
    "",
    exponential(1.0, 2, 5),
    "Attempts that scheduled pods needed.",
)
POD_SLI: Final = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "BETA",
    "attempts",
    _WAIT_S,
    "Seconds from a pod's first entry into activeQ to its bind, over all attempts.",
)
PREEMPTION_ATTEMPTS: Final = counter(
    "scheduler_preemption_attempts_total",
    "STABLE",
    "",
    "PostFilter calls that searched for victims for a pod.",
)
PREEMPTION_TASK_DURATION: Final = replace(
    histogram(
        "scheduler_preemption_goroutines_duration_seconds",
        "ALPHA",
        "result",
        _WAIT_S,
        "Seconds in which the victims of one preemption were evicted.",
    ),
    deprecated_since="1.37.0",
)
PREEMPTION_TASKS: Final = counter(
    "scheduler_preemption_goroutines_execution_total",
    "ALPHA",
    "result",
    "Preemptions whose victims were evicted in the background.",
)
PREEMPTION_VICTIMS: Final = histogram(
    "scheduler_preemption_victims", "STABLE", "", exponential(1.0, 2, 7), "Victims of one pod's preemption."
)
INCOMING_ENTITIES: Final = counter(
    "scheduler_queue_incoming_entities_total",
    "ALPHA",
    "event queue entity",
    "Entities that came into a queue, by the event that brought them: pod groups, and pods of no group.",
)
INCOMING_PODS: Final = counter(
    "scheduler_queue_incoming_pods_total",
    "STABLE",
    "event queue",
    "Pods that came into a queue, by the event that brought them.",
)
HINT_DURATION: Final = histogram(
    "scheduler_queueing_hint_execution_duration_seconds",
    "ALPHA",
    "event hint plugin",
    _CALL_S,
    "Seconds that the queueing hint of a plugin took.",
)
PRE_HINTS: Final = counter(
    "scheduler_pre_queueing_hint_evaluations_total",
    "ALPHA",
    "plugin result",
    "Events for which a plugin said which waiting pods they may help, by the answer.",
)
CLAIM_CREATES: Final = counter(
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "ALPHA",
    "admin_access owner_api_group owner_api_kind status",
    "ResourceClaims that were created for extended resources.",
)
ATTEMPTS: Final = counter(
    "scheduler_schedule_attempts_total", "STABLE", "profile result", "Attempts by how they ended."
)
ALGORITHM_DURATION: Final = histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "BETA",
    "",
    _ATTEMPT_S,
    "Seconds that the search for a node took: PreFilter to Score.",
)
ATTEMPT_DURATION: Final = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "STABLE",
    "profile result",
    _ATTEMPT_S,
    "Seconds that one attempt took, its binding cycle included.",
)
STORE_RESULTS: Final = histogram(
    "scheduler_store_schedule_results_duration_seconds",
    "ALPHA",
    "profile",
    _BATCH_S,
    "Seconds that the opportunistic batch took to store the results of an attempt.",
)
UNSCHEDULABLE_PODS: Final = gauge(
    "scheduler_unschedulable_pods",
    "BETA",
    "plugin profile",
    "Unschedulable and gated pods, by the plugin that rejected them.",
)
VOLUME_CACHE: Final = counter(
    "scheduler_volume_binder_cache_requests_total", "ALPHA", "operation", "Look-ups of volumes in the cache."
)
VOLUME_ERRORS: Final = counter(
    "scheduler_volume_scheduling_stage_error_total",
    "ALPHA",
    "operation",
    "Failures of a step in the scheduling of volumes.",
)

KUBE_SCHEDULER: Final[tuple[Family, ...]] = (
    *(family for family in list(globals().values()) if isinstance(family, Family)),
    *GROUP_FAMILIES,
)

CLAIM_CREATES_1_36: Final = counter(
    "scheduler_resourceclaim_creates_total",
    "ALPHA",
    "status",
    "ResourceClaims that were created for extended resources.",
)

# The cache's sizes under their names in kube-scheduler before 1.36, which has one family for them.
CACHE_ASSUMED: Final = gauge("scheduler_cache_size_assumed_pods", "ALPHA", "", "Assumed pods in the cache.")
CACHE_PODS: Final = gauge("scheduler_cache_size_pods", "ALPHA", "", "Pods on nodes in the cache.")
CACHE_NODES: Final = gauge("scheduler_cache_size_nodes", "ALPHA", "", "Nodes in the cache.")

BUILD_INFO: Final = gauge(
    "berth_build_info",
    "ALPHA",
    "version kube python",
    "1, with the versions of berth, of kube-scheduler that it decides like, and of Python.",
)
PENDING_BY_PLUGIN: Final = gauge(
    "berth_pending_pods",
    "ALPHA",
    "queue plugin",
    "Pending pods, by part of the queue and by the plugin that gates them or with which their last attempt"
    " failed; none: not tried yet, or no plugin.",
)
OLDEST_PENDING: Final = gauge(
    "berth_oldest_pending_pod_seconds",
    "ALPHA",
    "queue",
    "Seconds since the oldest pod in each part of the queue was created; 0 for a part without pods.",
)
PLUGIN_CALLS: Final = counter(
    "berth_plugin_calls_total", "ALPHA", "plugin extension_point", "Calls of a plugin."
)
PLUGIN_SECONDS: Final = counter(
    "berth_plugin_call_seconds_total",
    "ALPHA",
    "plugin extension_point",
    "Seconds that calls of a plugin took.",
)
PLUGIN_CALL_DURATION: Final = histogram(
    "berth_plugin_call_duration_seconds",
    "ALPHA",
    "plugin extension_point",
    exponential(0.000001, 4, 13),
    "Seconds that one call of a plugin took. OpenMetrics: with traced calls as exemplars.",
)
PLUGIN_SECONDS_MAX: Final = gauge(
    "berth_plugin_call_seconds_max",
    "ALPHA",
    "plugin extension_point",
    "Seconds of the longest call of a plugin.",
)
PLUGIN_MESSAGES: Final = counter(
    "berth_plugin_messages_total",
    "ALPHA",
    "plugin extension_point",
    "Requests sent to served plugins; a call with an early answer sends none.",
)
PLUGIN_BYTES_SENT: Final = counter(
    "berth_plugin_sent_bytes_total",
    "ALPHA",
    "plugin extension_point",
    "Bytes of the requests to served plugins.",
)
PLUGIN_BYTES_RECEIVED: Final = counter(
    "berth_plugin_received_bytes_total",
    "ALPHA",
    "plugin extension_point",
    "Bytes of the replies of served plugins.",
)
PLUGIN_FAILURES: Final = counter(
    "berth_plugin_failures_total",
    "ALPHA",
    "plugin extension_point kind",
    "Calls without a usable answer, by kind: timeout, unavailable, violation and so on.",
)
PLUGIN_POLICIES: Final = counter(
    "berth_plugin_policies_total",
    "ALPHA",
    "plugin extension_point policy",
    "Calls that a failure policy answered in place of the plugin.",
)
PLUGIN_REPEATS: Final = counter(
    "berth_plugin_repeats_total", "ALPHA", "plugin extension_point", "Calls that were made a second time."
)
PLUGIN_OVERRUNS: Final = counter(
    "berth_plugin_overruns_total",
    "ALPHA",
    "plugin extension_point",
    "Answers of in-process plugins that came after the deadline.",
)
PLUGIN_VIOLATIONS: Final = counter(
    "berth_plugin_violations_total", "ALPHA", "plugin", "Answers that violate the plugin contract."
)
PLUGIN_REMARKS: Final = counter(
    "berth_plugin_remarks_total",
    "ALPHA",
    "plugin",
    "Answers of PreScore that gave a reason without an error, such as nodes that the plugin cannot score.",
)
PLUGIN_DRIFTS: Final = counter(
    "berth_plugin_state_drifts_total",
    "ALPHA",
    "plugin",
    "Times that an instance dropped its copy of the cluster's state, as the copy differed from the host's.",
)
EVENTS_DROPPED: Final = counter(
    "berth_events_dropped_total",
    "ALPHA",
    "reason",
    "Kubernetes Events that were not written to the API server.",
)
OBJECTS_REFUSED: Final = counter(
    "berth_objects_refused_total", "ALPHA", "kind", "Objects of a watch that could not be read."
)
WATCH_TROUBLE: Final = counter(
    "berth_watch_interruptions_total",
    "ALPHA",
    "resource reason",
    "Times that a watch was restarted, its list was read again, or one of its lines could not be read.",
)
CONNECTIONS: Final = gauge(
    "berth_open_connections",
    "ALPHA",
    "port phase",
    "Open connections of a port. Phases: waiting (for the first bytes, or for a turn of the TLS handshake),"
    " handshaking, idle, answering.",
)
CONNECTION_EVENTS: Final = counter(
    "berth_connections_total",
    "ALPHA",
    "port event",
    "Connections of a port: accepted, handshaken (TLS), handshake_failed, refused (no room), closed_for_room"
    " (the longest silent one), closed_silent (no request in time), closed_certificate (the client's has"
    " ended, or its CA was replaced).",
)
REQUESTS_REFUSED: Final = counter(
    "berth_requests_refused_total",
    "ALPHA",
    "port reason",
    "Requests that were refused: malformed, unauthenticated, forbidden, busy (too many callers wait to be"
    " identified).",
)
LOG_LINES_LEFT_OUT: Final = counter(
    "berth_log_lines_left_out_total",
    "ALPHA",
    "port",
    "Log lines about connections and callers without rights that were left out, as there were too many.",
)
OVERFULL_NODES: Final = gauge(
    "berth_overfull_nodes",
    "ALPHA",
    "",
    "Nodes whose pods request more than the node offers, in some resource or in the number of pods.",
)
NODES_FILLED: Final = counter(
    "berth_bindings_given_up_total",
    "ALPHA",
    "",
    "Pods that went back to the queue right before their Binding, as others had filled their node.",
)
BOUND_BY_OTHERS: Final = counter(
    "berth_pods_bound_by_others_total",
    "ALPHA",
    "",
    "Pods of this scheduler's queue that another client bound, from 30 s after this scheduler began to lead.",
)
PLUGIN_INSTANCES: Final = gauge(
    "berth_plugin_instances", "ALPHA", "plugin state", "Places of a served plugin, by their state."
)
PLUGIN_ABSENT: Final = gauge(
    "berth_plugin_absent",
    "ALPHA",
    "plugin",
    "1 while a required plugin cannot be called; its calls follow the failure policy of their point.",
)
PLUGIN_CIRCUITS: Final = gauge(
    "berth_plugin_circuit_open",
    "ALPHA",
    "plugin extension_point",
    "1 while the circuit breaker of a served plugin at an extension point is open or half-open.",
)
KEPT_ENTRIES: Final = gauge(
    "berth_kept_entries",
    "ALPHA",
    "store",
    "Entries of bounded stores: attempts for `berth why`, and Events that may recur.",
)
TASKS: Final = gauge("berth_tasks", "ALPHA", "coroutine", "Tasks of the event loop, by coroutine.")
UNRESERVE_AGE: Final = gauge(
    "berth_unreserve_age_seconds",
    "ALPHA",
    "plugin",
    "Age of the oldest pending Unreserve of a served plugin; 0 if there is none.",
)
POST_BIND_AGE: Final = gauge(
    "berth_post_bind_age_seconds",
    "ALPHA",
    "plugin",
    "Age of the oldest PostBind, or end of a bound pod's cycle, that is held until the snapshot has the pod;"
    " 0 if there is none.",
)
POST_BINDS_DROPPED: Final = counter(
    "berth_post_binds_dropped_total",
    "ALPHA",
    "plugin",
    "PostBinds, or ends of bound pods' cycles, that were dropped because 10000 others were held. The plugin"
    " got a new list of its live reservations.",
)
RESERVATIONS: Final = gauge(
    "berth_reservations",
    "ALPHA",
    "plugin",
    "Reservations of a served plugin: of pods in their binding cycle, of bound pods whose PostBind is held,"
    " and those with a pending Unreserve.",
)
GANG_HOLDS: Final = counter(
    "berth_gang_holds_total",
    "ALPHA",
    "outcome",
    "Holds of room for groups of pods that ended, by how: placed, preempts, timed_out, displaced, unfit,"
    " deleted or given_up.",
)
GANG_HELD_PLACES: Final = gauge(
    "berth_gang_held_places", "ALPHA", "", "Pods of a group for which room is held now."
)
GANG_BACKFILLED: Final = counter(
    "berth_gang_backfilled_pods_total",
    "ALPHA",
    "",
    "Pods that were let in to held room, counted when the hold ends.",
)
SHADOW_DECISIONS: Final = counter(
    "berth_shadow_decisions_total",
    "ALPHA",
    "outcome",
    "Decisions of a shadow that were compared with the real scheduler's, by how they compare.",
)
SHADOW_DIFFERENCES: Final = counter(
    "berth_shadow_differences_total",
    "ALPHA",
    "outcome plugin",
    "Decisions of a shadow that differ from the real scheduler's, by the plugin that made the difference.",
)
SHADOW_DECIDED: Final = histogram(
    "berth_shadow_decision_duration_seconds",
    "ALPHA",
    "profile",
    _ATTEMPT_S,
    "Seconds that one attempt of a shadow took.",
)
SHADOW_REAL: Final = histogram(
    "berth_shadow_real_duration_seconds",
    "ALPHA",
    "profile",
    exponential(0.001, 2, 20),
    "Seconds from when a pod could first be tried to when a shadow saw the real scheduler's binding.",
)
TRACE_SPANS: Final = counter(
    "berth_trace_spans_total",
    "ALPHA",
    "result",
    "Spans of traced attempts, by what became of them: sent to the collector, or dropped.",
)

BERTH: Final[tuple[Family, ...]] = tuple(
    family
    for family in list(globals().values())
    if isinstance(family, Family) and family not in (*KUBE_SCHEDULER, CLAIM_CREATES_1_36)
)

POD_REQUEST: Final = gauge(
    "kube_pod_resource_request",
    "STABLE",
    "namespace pod node scheduler priority resource unit",
    "The requests of a pod, as the scheduler counts them.",
)
POD_LIMIT: Final = gauge(
    "kube_pod_resource_limit",
    "STABLE",
    "namespace pod node scheduler priority resource unit",
    "The limits of a pod.",
)
HEALTH_CHECK: Final = gauge(
    "kubernetes_healthcheck", "STABLE", "name type", "1 if a health check passed the last time, otherwise 0."
)
HEALTH_CHECKS: Final = counter(
    "kubernetes_healthchecks_total", "STABLE", "name type status", "Health checks made, by their result."
)
