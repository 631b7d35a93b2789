"""Traces of attempts, and of the calls around them, with OpenTelemetry.

Off by default: OpenTelemetry is imported when a host turns it on.

attempt_trace.py  the times of one traced attempt
live_spans.py     the spans of calls that belong to no running attempt: of the queue and of the outbox
tracing.py        the times of an attempt -> spans -> the collector
"""
