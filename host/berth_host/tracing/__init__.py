"""Traces of attempts, with OpenTelemetry. Off by default: OpenTelemetry is imported when a host turns it on.

attempt_trace.py  the times of one traced attempt
tracing.py        these times -> spans -> the collector
"""
