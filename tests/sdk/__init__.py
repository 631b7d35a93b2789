"""Tests of the SDK: the names that an author uses, and the server."""
