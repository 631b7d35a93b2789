#!/bin/sh
# Puts Kubernetes' own workloads (test/integration/scheduler_perf) where `berth bench scheduler-perf` looks for
# them: .cache/scheduler-perf/VERSION. Called by `make scheduler-perf-data`.
#
# The files that run come out of the module that `make envtest` builds the servers from. The thresholds of the
# release after it come out of a folder with its source, if there is one: KUBERNETES_LATER, or the module
# cache; nothing here depends on that module, so it is not fetched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=${SCHEDULER_PERF_DATA:-$(cd "$here/../../.." && pwd)/.cache/scheduler-perf}
version=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/go.mod")
later=v1.37.2
inside=test/integration/scheduler_perf

# Named when it is whole: what is interrupted leaves no half folder behind.
put() {
	rm -rf "$data/.$2.$$"
	mkdir -p "$data/.$2.$$"
	(cd "$1/$inside" && find . -name '*.yaml' | while read -r file; do
		mkdir -p "$data/.$2.$$/$(dirname "$file")"
		cp "$file" "$data/.$2.$$/$file"
		chmod u+w "$data/.$2.$$/$file"
	done)
	rm -rf "${data:?}/$2"
	mv "$data/.$2.$$" "$data/$2"
	echo "scheduler-perf-data: the files of $2 are in $data/$2"
}

if ! command -v go >/dev/null; then
	echo 'scheduler-perf-data: Go is needed, for its module cache, and is not on PATH: install it' \
		'(https://go.dev/doc/install)' >&2
	exit 1
fi
folder=$(cd "$here" && go mod download -json k8s.io/kubernetes | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
if [ ! -d "$folder/$inside" ]; then
	echo "scheduler-perf-data: k8s.io/kubernetes $version has no $inside in '$folder'" >&2
	exit 1
fi
put "$folder" "$version"

folder=${KUBERNETES_LATER:-$(go env GOMODCACHE)/k8s.io/kubernetes@$later}
if [ -d "$folder/$inside" ]; then
	put "$folder" "$later"
elif [ -d "$data/$later" ]; then
	echo "scheduler-perf-data: the files of $later in $data/$later are left as they are"
elif [ -n "${KUBERNETES_LATER:-}" ]; then
	echo "scheduler-perf-data: KUBERNETES_LATER names $folder, which has no $inside" >&2
	exit 1
else
	echo "scheduler-perf-data: for the thresholds of $later beside those of $version: check out the tag $later of" \
		'Kubernetes and call make scheduler-perf-data KUBERNETES_LATER=THE_FOLDER'
fi
