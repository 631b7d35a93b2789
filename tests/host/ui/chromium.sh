#!/bin/sh
# Installs Chromium's headless shell, in which the tests of the page run: Debian's package `chromium-headless-shell`.
# A whole Chromium that is there is enough; the tests take more time in it. Called by `make envtest`.
set -eu
exec sh "${0%/*}/../../support/debian_package.sh" 'chromium-headless-shell chromium chromium-browser' \
	'chromium-headless-shell fonts-dejavu-core' Chromium 'the tests of the page'
