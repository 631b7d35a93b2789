"""Tests of records as messages, and of how these travel."""
