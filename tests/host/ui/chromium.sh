#!/bin/sh
# Installs Chromium, in which the tests of the page run: Debian's package `chromium`. Called by `make envtest`.
set -eu
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then
	echo "chromium: $(command -v chromium || command -v chromium-browser)"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo 'chromium: no apt-get here; install Chromium yourself, or the tests of the page are skipped' >&2
	exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo 'chromium: not installed, and only root may: apt-get install chromium, or the tests of the page are skipped' >&2
		exit 0
	fi
	as_root='sudo -n'
fi
install() {
	# shellcheck disable=SC2086  # without sudo it is no word at all
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
}
install 2>/dev/null || { $as_root apt-get update -q >/dev/null && install; }
echo "chromium: $(command -v chromium)"
