"""Random and hostile objects for the fuzzer, what it does with them, and how a failure gets smaller."""
