#!/bin/sh
# Installs the oldest protoc that compiles the contract: Debian's package `protobuf-compiler`. Called by `make envtest`.
set -eu
exec sh "${0%/*}/../support/debian_package.sh" protoc protobuf-compiler 'protoc 3.21' 'the tests of old compilers'
