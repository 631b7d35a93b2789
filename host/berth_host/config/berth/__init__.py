"""BerthConfiguration: berth's own settings beside KubeSchedulerConfiguration."""
