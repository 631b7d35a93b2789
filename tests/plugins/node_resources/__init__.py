"""Tests of NodeResourcesFit, NodeResourcesBalancedAllocation and their strategies."""
