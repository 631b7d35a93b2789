"""Tests of README.md and docs/: blocks run, links resolve, the reference equals its sources."""
