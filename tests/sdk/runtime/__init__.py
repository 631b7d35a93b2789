"""Tests of a plugin instance, as the host and the server use it."""
