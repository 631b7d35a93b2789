"""Tests of a plugin instance as host and server use it."""
