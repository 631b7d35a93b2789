"""NodeResourcesFit and NodeResourcesBalancedAllocation, and the strategies of scoring."""
