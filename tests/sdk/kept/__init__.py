"""Tests of answers that are kept for equal pods."""
