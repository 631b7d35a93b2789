"""Tests of the SDK: what an author writes against, and the server that serves it."""
