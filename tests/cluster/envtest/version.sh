# Versions of Kubernetes and of its modules, for the scripts of this folder. They source this file.

# Print the release that a go.mod pins, with the ending of a pre-release.
pinned() {
	sed -n 's/^[[:space:]]*k8s.io\/kubernetes \(v[^[:space:]]*\).*/\1/p' "$1"
}

# Print the release to build: the one that ENVTEST_K8S_VERSION names, else the one that the go.mod pins.
chosen() {
	if [ -z "${ENVTEST_K8S_VERSION:-}" ]; then
		pinned "$1"
		return
	fi
	set -- "$(printf '%s\n' "$ENVTEST_K8S_VERSION" |
		sed -n -E 's/^v?(1\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?)$/v\1/p')"
	if [ -z "$1" ]; then
		echo "envtest: ENVTEST_K8S_VERSION is \"$ENVTEST_K8S_VERSION\", which is no release of Kubernetes:" \
			'set a full version, such as v1.36.3 or v1.38.0-rc.0' >&2
		return 1
	fi
	echo "$1"
}

# Print the minor of a release: 38 of v1.38.0-rc.0.
minor() {
	set -- "${1#v1.}"
	echo "${1%%.*}"
}

# Print the version of the libraries (k8s.io/api and others) of a release: v0.38.0-rc.0 of v1.38.0-rc.0.
staging() {
	echo "v0.${1#v1.}"
}

# Print a go.mod for a release: `made_module VERSION FILE`. FILE is the go.mod of Kubernetes itself at that
# release, which names the libraries and the version of Go.
made_module() {
	echo 'module berth.io/envtest/made'
	sed -n 's/^go \([0-9.]*\)$/go \1/p' "$2"
	sed -n 's/^godebug \(default=.*\)$/godebug \1/p' "$2"
	echo "require k8s.io/kubernetes $1"
	sed -n "s/^[[:space:]]*\(k8s.io\/[^ ]*\) => \.\/staging\/.*/replace \1 => \1 $(staging "$1")/p" "$2"
}
