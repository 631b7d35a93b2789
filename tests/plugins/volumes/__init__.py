"""Tests of the plugins that look at volumes."""
