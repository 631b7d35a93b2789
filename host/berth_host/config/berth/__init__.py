"""BerthConfiguration: what berth wants to know beside KubeSchedulerConfiguration."""
