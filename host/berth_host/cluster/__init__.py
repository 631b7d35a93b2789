"""The cluster behind an interface (`port`): `memory` is the embedded cluster, `kube` a real one."""
