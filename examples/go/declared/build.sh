#!/bin/sh
# Generates the Go code of the contract (plugin/v1, which git ignores) and builds ./declared, or the file in $1.
# Needs Go, and a protoc: PROTOC names one; without it, that of Python's grpcio-tools.
set -eu
cd "$(dirname "$0")"
proto=../../../proto
${PROTOC:-python -m grpc_tools.protoc} \
    --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" \
    --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" \
    --proto_path="$proto" --go_out=. --go_opt=module=berth.io --go-grpc_out=. --go-grpc_opt=module=berth.io \
    "$proto"/berth/plugin/v1/*.proto
go build -trimpath -o "${1:-declared}" .
