"""Tests of what the load-aware plugins share."""
