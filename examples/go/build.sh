#!/bin/sh
# Generates the Go code of the contract (plugin/v1, which git ignores) and builds the plugins into the folder $1, or bin.
# `build.sh FOLDER NAME` builds the plugin NAME only; several names are one argument.
# Needs Go, and a protoc: PROTOC names one; without it, that of Python's grpcio-tools. After the first run, which
# downloads the modules of go.sum, no network is needed.
set -eu
into=${1:-$(dirname "$0")/bin}
mkdir -p "$into"
into=$(cd "$into" && pwd)
cd "$(dirname "$0")"
proto=${PROTO:-../../proto}
${PROTOC:-python -m grpc_tools.protoc} \
    --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" \
    --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" \
    --proto_path="$proto" --go_out=. --go_opt=module=berth.io --go-grpc_out=. --go-grpc_opt=module=berth.io \
    "$proto"/berth/plugin/v1/*.proto
for plugin in ${2:-smallest bitmaps binding declared}; do
    go build -trimpath -o "$into/$plugin" "./$plugin"
done
