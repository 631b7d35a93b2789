"""Tests of what the SDK offers to tests of plugins."""
