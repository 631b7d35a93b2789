"""Tests of the command `berth-sdk`."""
