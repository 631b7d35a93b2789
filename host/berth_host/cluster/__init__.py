"""The cluster behind an interface (`port`): embedded in `berth_sim.cluster`, a real one in `berth_kube`."""
