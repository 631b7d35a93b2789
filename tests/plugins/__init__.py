"""Tests of the default plugins: the rules case by case, and each plugin against a plain reading of them."""
