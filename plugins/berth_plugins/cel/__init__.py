"""The Common Expression Language of Kubernetes: parser, type checker, libraries and runtime cost limit.

`Environment` compiles an expression over declared variables; the program then evaluates it for their values.
DynamicResources uses it for device selectors, and the package itself knows nothing of devices.

Source: cel-spec; `google/cel-go` v0.29; `k8s.io/apiserver/pkg/cel`, v1.37.
"""
