#!/bin/sh
# Installs Chromium, in which the tests of the page run: Debian's package `chromium`. Called by `make envtest`.
set -eu
exec sh "${0%/*}/../../support/debian_package.sh" 'chromium chromium-browser' 'chromium fonts-dejavu-core' Chromium \
	'the tests of the page'
