"""Tests of InterPodAffinity and its parts."""
