"""Tests of PodTopologySpread and its parts."""
