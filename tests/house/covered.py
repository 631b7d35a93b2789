"""Modules whose test file has another name than theirs, with the reason. Used by `test_namesakes`.

A part of a larger one is tested through it, by what the larger one does; a Protocol or a plain record does
nothing. What decides, counts or remembers by itself gets a test file of its name instead of a line here.
"""

from __future__ import annotations

from typing import Final

PART: Final = "a part of the module that the test is named after"
RECORD: Final = "Protocols or plain records, which do nothing by themselves"
WHOLE: Final = "seen only when a whole host or server runs"

COVERED: Final[dict[str, dict[str, str]]] = {
    PART: {
        "berth_host.attach.attachment": "host/attach/test_attachments.py",
        "berth_host.attach.seams": "host/attach/test_attachments.py",
        "berth_host.attach.state": "host/attach/test_standing.py",
        "berth_host.cache.generations": "host/cache/test_objects.py",
        "berth_host.cache.node_info": "host/cache/test_cache.py",
        "berth_host.cache.resources": "host/cache/test_objects.py",
        "berth_host.framework.binding": "host/framework/test_framework.py",
        "berth_host.framework.filtering": "host/framework/test_framework.py",
        "berth_host.framework.scoring": "host/framework/kept/test_keep_answers.py",
        "berth_host.queue.moves": "host/queue/test_alike.py",
        "berth_host.queue.nominated_columns": "host/scheduler/test_nominations.py",
        "berth_host.queue.places": "host/queue/test_scheduling_queue.py",
        "berth_host.rpc.group_calls": "host/rpc/test_group_client.py",
        "berth_sdk.cli.new_python": "sdk/cli/test_new.py",
        "berth_host.rpc.group_checks": "host/rpc/test_group_client.py",
        "berth_host.rpc.in_process": "host/rpc/test_relay.py",
        "berth_host.rpc.served.contexts": "host/rpc/served/test_grpc_transport.py",
        "berth_host.rpc.served.replies": "host/rpc/served/test_codec.py",
        "berth_host.rpc.served.requests": "host/rpc/served/test_grpc_transport.py",
        "berth_host.rpc.served.sender": "host/rpc/served/test_framed_calls.py",
        "berth_host.rpc.route": "host/rpc/test_relay.py",
        "berth_host.scheduler.attempt": "host/scheduler/test_schedule_one.py",
        "berth_host.scheduler.group_attempt": "host/scheduler/test_schedule_group.py",
        "berth_host.scheduler.placements": "host/scheduler/test_schedule_group.py",
        "berth_host.scheduler.pod_steps": "host/scheduler/test_schedule_one.py",
        "berth_host.scheduler.search": "host/scheduler/test_sampling.py",
        "berth_host.scheduler.undoing": "host/scheduler/test_binding_cycle.py",
        "berth_host.scheduler.preemption.apart": "host/scheduler/preemption/test_units.py",
        "berth_host.scheduler.preemption.budgets": "host/scheduler/preemption/test_evaluator.py",
        "berth_host.scheduler.preemption.dry_run": "host/scheduler/preemption/test_evaluator.py",
        "berth_host.scheduler.preemption.eligibility": "host/scheduler/preemption/test_evaluator.py",
        "berth_host.scheduler.preemption.kept_outcomes": "host/scheduler/preemption/test_sharing.py",
        "berth_host.scheduler.preemption.selection": "host/scheduler/preemption/test_evaluator.py",
        "berth_host.scheduler.preemption.victims": "host/scheduler/preemption/test_evaluator.py",
        "berth_sdk.author": "sdk/test_public_api.py",
        "berth_sdk.cli.loading": "sdk/cli/test_serve.py",
        "berth_sdk.parsing.frozen": "sdk/test_pod.py",
        "berth_sdk.runtime.convert": "sdk/runtime/test_plugin_runtime.py",
        "berth_sdk.runtime.declarations": "sdk/runtime/test_descriptor.py",
        "berth_sdk.runtime.normalization": "sdk/testing/test_host.py",
        "berth_sdk.wire.groups": "host/rpc/test_group_client.py",
        "berth_sdk.selected_pods": "sdk/tables/test_pod_counts.py",
        "berth_sdk.serve.extender.handle": "sdk/serve/extender/test_server.py",
        "berth_sdk.tables.few": "sdk/kept/test_known_slots.py",
        "berth_sdk.tables.node_columns": "sdk/tables/test_node_table.py",
        "berth_sdk.tables.node_images": "sdk/tables/test_node_table.py",
        "berth_sdk.tables.node_view": "sdk/tables/test_node_table.py",
        "berth_sdk.tables.pod_changes": "sdk/tables/test_pod_counts.py",
        "berth_sdk.tables.read_only": "sdk/tables/test_node_table.py",
        "berth_sdk.testing.attempt": "sdk/testing/test_host.py",
        "berth_sdk.testing.clock": "sdk/testing/test_host.py",
        "berth_sdk.testing.groups": "plugins/test_gang_scheduling.py",
        "berth_sdk.testing.handle": "sdk/testing/test_host.py",
        "berth_sdk.testing.waiting": "sdk/testing/test_way.py",
        "berth_sdk.wire.credential": "sdk/serve/test_admission.py",
        "berth_sdk.wire.status": "host/rpc/served/test_statuses.py",
    },
    RECORD: {
        "berth_host.attach.feed": "host/rpc/served/test_loopback.py",
        "berth_host.framework.answers": "host/framework/kept/test_states.py",
        "berth_host.queue.seams": "host/queue/test_flush_timers.py",
        "berth_host.rpc.call": "host/rpc/test_calls.py",
        "berth_host.rpc.cycle": "host/rpc/test_early.py",
        "berth_host.rpc.transport": "host/rpc/test_completeness.py",
        "berth_host.scheduler.cluster_calls": "host/scheduler/test_patches.py",
        "berth_sdk.errors": "sdk/test_quantity.py",
        "berth_sdk.events": "host/queue/test_events.py",
        "berth_sdk.extension_points": "sdk/test_public_api.py",
        "berth_sdk.handle": "sdk/testing/test_host.py",
        "berth_sdk.kube_object": "sdk/test_pod.py",
        "berth_sdk.needs": "sdk/runtime/test_descriptor.py",
        "berth_sdk.results": "sdk/wire/test_results.py",
        "berth_sdk.serve.served": "sdk/serve/test_cycles.py",
        "berth_sdk.tables.state_version": "sdk/serve/test_state_copy.py",
    },
    WHOLE: {
        "berth_host.queue.reports": "host/queue/test_sort_keys.py",
        "berth_host.attach.host_attachments": "host/app/test_life.py",
        "berth_host.process.process": "host/process/test_opening.py",
        "berth_host.attach.reconciling": "host/app/test_reconcile.py",
        "berth_host.scheduler.evictions": "host/app/test_preemption_crash.py",
        "berth_sdk.serve.child": "sdk/cli/test_serve.py",
    },
}
"""Reason -> module -> the test file that fails when the module is wrong, below `tests/`."""
