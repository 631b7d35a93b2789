#!/bin/sh
# Builds the plugin into target. `build.sh test` runs the tests too.
# Needs a JDK from 17 and Maven. After a first run of either kind, which downloads the versions of pom.xml, no network is
# needed for it.
set -eu
cd "$(dirname "$0")"
if [ "${1:-}" = test ]; then
    exec mvn --batch-mode --no-transfer-progress test
fi
exec mvn --quiet --batch-mode process-classes
