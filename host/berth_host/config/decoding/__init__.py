"""Strict decoding: source values -> typed values of one API version, and back to JSON."""
