"""Tests of the SDK's tools for tests of plugins."""
