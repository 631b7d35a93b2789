"""CEL as Kubernetes has it: the language, the libraries of its environment, and the cost limit at runtime.

The package knows nothing about devices. `Environment` compiles an expression over declared variables.

Source: cel-spec; `google/cel-go` v0.29; `k8s.io/apiserver/pkg/cel`, v1.37.
"""
