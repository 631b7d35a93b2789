#!/bin/sh
# Brings promtool, which tries the chart's alerts, and prometheus, which a test of the load-aware plugins runs, into a
# folder of the user's cache, from Debian's package prometheus; nothing is installed. Called by `make envtest`.
set -eu
store=${XDG_CACHE_HOME:-$HOME/.cache}/berth/promtool
found() {
	command -v "$1" || { [ -x "$store/$1" ] && echo "$store/$1"; }
}
if found promtool >/dev/null && found prometheus >/dev/null; then
	echo "promtool: $(found promtool), prometheus: $(found prometheus)"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo 'promtool: no apt-get here; install promtool yourself (it comes with Prometheus), or the tests of alerts and of a real Prometheus are skipped' >&2
	exit 0
fi
mkdir -p "$store"
cd "$store"
apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null && apt-get download -q prometheus >/dev/null; }
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool ./usr/bin/prometheus
rm prometheus_*.deb
echo "promtool: $(found promtool), prometheus: $(found prometheus)"
