"""Tests of records as messages, and of how messages travel."""
