"""Validation of decoded and defaulted values, with kube-scheduler's error types and field paths."""
