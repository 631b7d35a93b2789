"""Tests of the plugins that check volumes."""
