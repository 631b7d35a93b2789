"""The cluster behind an interface (`port`): `memory` is the embedded cluster, `berth_kube` a real one."""
