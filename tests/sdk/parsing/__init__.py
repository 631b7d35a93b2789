"""Tests of how objects are read."""
