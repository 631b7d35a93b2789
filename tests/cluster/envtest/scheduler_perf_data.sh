#!/bin/sh
# Puts Kubernetes' own workloads (test/integration/scheduler_perf) where `berth bench scheduler-perf` looks for
# them: .cache/scheduler-perf/VERSION. Called by `make scheduler-perf-data`.
#
# The workloads are those of the release that `make envtest` builds the servers from: the one that
# ENVTEST_K8S_VERSION names, else the one that the go.mod pins. They come as a Go module.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=${SCHEDULER_PERF_DATA:-$(cd "$here/../../.." && pwd)/.cache/scheduler-perf}
. "$here/version.sh"
version=$(chosen "$here/go.mod")
inside=test/integration/scheduler_perf

# What Go knows of a release, as JSON. Go downloads it if need be, and says on standard error why not.
fetch() {
	go mod download -json "k8s.io/kubernetes@$1"
}

# The value of a name in such an answer: the folder ("Dir"), or the archive ("Zip") where this Go is older than
# the one that the release asks for and unpacks nothing. Workloads need no compiler.
named() {
	printf '%s\n' "$1" | sed -n "s/^[[:space:]]*\"$2\": \"\(.*\)\",*\$/\1/p"
}

# Unpack the workloads of an archive into a folder: `unpack ZIP FOLDER`.
unpack() {
	"${PYTHON:-python3}" - "$1" "$2" "/$inside/" <<-'END'
		import pathlib, sys, zipfile

		archive, folder, inside = sys.argv[1:]
		with zipfile.ZipFile(archive) as files:
		    for name in files.namelist():
		        if inside in name and name.endswith(".yaml"):
		            path = pathlib.Path(folder + inside + name.partition(inside)[2])
		            path.parent.mkdir(parents=True, exist_ok=True)
		            path.write_bytes(files.read(name))
	END
}

# The folder gets its name when it is whole: an interrupted copy leaves no half folder behind.
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
	echo 'scheduler-perf-data: Go is needed to download Kubernetes, and is not on PATH: install it' \
		'(https://go.dev/doc/install)' >&2
	exit 1
fi
mkdir -p "$data"
cd "$data"
known=$(fetch "$version") || true
folder=$(named "$known" Dir)
archive=$(named "$known" Zip)
if [ -z "$folder" ] && [ -f "$archive" ]; then
	folder=$data/.unpacked.$$
	trap 'rm -rf "$folder"' EXIT
	unpack "$archive" "$folder"
fi
if [ ! -d "$folder/$inside" ]; then
	echo "scheduler-perf-data: Go has not downloaded k8s.io/kubernetes@$version: mend what it says above" \
		'(without a network, name a proxy that has the module in GOPROXY), then try again' >&2
	exit 1
fi
put "$folder" "$version"
