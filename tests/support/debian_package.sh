#!/bin/sh
# Installs packages of Debian that tests need, unless a program of theirs is there. Called by scripts of `make envtest`.
#   $1 the programs, one of which is enough; $2 the packages; $3 the name for people; $4 the tests that need it
set -eu
name=${1%% *}
programs=$1
packages=$2
title=$3
skipped="or $4 are skipped (in CI they fail)"
found() {
	for program in $programs; do
		command -v "$program" && return
	done
	return 1
}
if found >/dev/null; then
	echo "$name: $(found)"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "$name: no apt-get here; install $title yourself, $skipped" >&2
	exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo "$name: not installed, and only root may: apt-get install ${packages%% *}, $skipped" >&2
		exit 0
	fi
	as_root='sudo -n'
fi
install() {
	# shellcheck disable=SC2086  # without sudo it is no word at all; the packages are several words
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages >/dev/null
}
# The lists of packages may be missing, or name versions that are gone: only then they are read.
if ! install 2>/dev/null; then
	echo "$name: reading the lists of packages (apt-get update)"
	# shellcheck disable=SC2086
	if ! $as_root apt-get update -q >/dev/null || ! install; then
		echo "$name: apt-get failed, as it says above; install $title yourself, $skipped" >&2
		exit 1
	fi
fi
if ! found >/dev/null; then
	echo "$name: apt-get is content, and the PATH has none of: $programs. Install $title yourself" >&2
	exit 1
fi
echo "$name: $(found)"
