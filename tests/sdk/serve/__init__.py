"""Tests of the process that serves plugins."""
