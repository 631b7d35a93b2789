#!/bin/sh
# Brings promtool, which tries the chart's alerts, into a folder of the user's cache, from Debian's package
# prometheus; nothing is installed, and no server is started. Called by `make envtest`.
set -eu
store=${XDG_CACHE_HOME:-$HOME/.cache}/berth/promtool
if command -v promtool >/dev/null || [ -x "$store/promtool" ]; then
	echo "promtool: $(command -v promtool || echo "$store/promtool")"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo 'promtool: no apt-get here; install promtool yourself (it comes with Prometheus), or the tests of alerts are skipped' >&2
	exit 0
fi
mkdir -p "$store"
cd "$store"
apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null && apt-get download -q prometheus >/dev/null; }
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool
rm prometheus_*.deb
echo "promtool: $store/promtool"
