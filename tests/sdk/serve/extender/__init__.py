"""Tests of a plugin served as an HTTP extender."""
