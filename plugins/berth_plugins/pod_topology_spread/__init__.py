"""PodTopologySpread: `plugin` has the class, the other modules its parts."""
