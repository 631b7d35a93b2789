"""PodTopologySpread: `plugin` is the class; the others are its parts."""
