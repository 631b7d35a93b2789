#!/bin/sh
# Builds the plugin into the folder $1, or bin. Needs Cargo, and a protoc: PROTOC names one, as a command with its
# arguments; without it, that of Python's grpcio-tools. `build.sh test` runs the tests.
# After the first run, which downloads the crates of Cargo.lock, no network is needed.
set -eu
cd "$(dirname "$0")"
mkdir -p target
# Cargo takes the path of a program.
printf '#!/bin/sh\nexec %s "$@"\n' "${PROTOC:-python -m grpc_tools.protoc}" >target/protoc.new
chmod +x target/protoc.new
# The same file keeps its age, or Cargo would build again.
cmp -s target/protoc.new target/protoc || cp -p target/protoc.new target/protoc
export PROTOC="$PWD/target/protoc"
if [ "${1:-}" = test ]; then
    exec cargo test --release --locked
fi
cargo build --release --locked --bins
mkdir -p "${1:-bin}"
# A running plugin keeps its own file.
cp --remove-destination "target/release/sample-plugin" "${1:-bin}/sample-plugin"
