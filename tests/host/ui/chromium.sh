#!/bin/sh
# Installs Chromium, in which the tests of the page run: Debian's package `chromium`. Called by `make envtest`.
set -eu
skipped='or the tests of the page are skipped (in CI they fail)'
found() {
	command -v chromium || command -v chromium-browser
}
if found >/dev/null; then
	echo "chromium: $(found)"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "chromium: no apt-get here; install Chromium yourself, $skipped" >&2
	exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo "chromium: not installed, and only root may: apt-get install chromium, $skipped" >&2
		exit 0
	fi
	as_root='sudo -n'
fi
install() {
	# shellcheck disable=SC2086  # without sudo it is no word at all
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
}
# The lists of packages may be missing, or name versions that are gone: only then they are read.
if ! install 2>/dev/null; then
	echo 'chromium: reading the lists of packages (apt-get update)'
	# shellcheck disable=SC2086
	if ! $as_root apt-get update -q >/dev/null || ! install; then
		echo "chromium: apt-get failed, as it says above; install Chromium yourself, $skipped" >&2
		exit 1
	fi
fi
if ! found >/dev/null; then
	echo 'chromium: apt-get is content, and neither chromium nor chromium-browser is on the PATH: install Chromium yourself' >&2
	exit 1
fi
echo "chromium: $(found)"
