"""Tests of the contract in `proto/` and of the checks that keep it compatible."""
