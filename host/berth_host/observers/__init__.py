"""Observers of attempts: one writes their metrics, and one their traces if tracing is on."""
