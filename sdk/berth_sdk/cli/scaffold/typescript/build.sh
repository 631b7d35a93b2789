#!/bin/sh
# Generates the TypeScript code of the contract (src/generated, which git ignores) and compiles the plugin into dist.
# Needs Node 20 or newer, and a protoc: PROTOC names one; without it, that of Python's grpcio-tools. The packages of
# package-lock.json are installed once: without a change of that file, no network is needed.
set -eu
cd "$(dirname "$0")"
proto=${PROTO:-proto}
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --prefer-offline --no-progress
    cp package-lock.json node_modules/.installed
fi
mkdir -p src/generated
${PROTOC:-python -m grpc_tools.protoc} \
    --plugin=protoc-gen-ts_proto=node_modules/.bin/protoc-gen-ts_proto \
    --proto_path="$proto" --ts_proto_out=src/generated \
    --ts_proto_opt=outputServices=grpc-js,forceLong=bigint,esModuleInterop=true,importSuffix=.js \
    --ts_proto_opt=outputJsonMethods=false,useExactTypes=false \
    "$proto"/berth/plugin/v1/*.proto
node_modules/.bin/tsc
