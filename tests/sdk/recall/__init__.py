"""Tests of what is kept for pods that are the same."""
