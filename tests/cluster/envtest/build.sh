#!/bin/sh
# Builds the real servers that tests/cluster runs against, from their published Go modules, into a folder of
# the user's cache. What is there already is not built again. Called by `make envtest`, and with the word `e2e`
# by `make e2e`, for kwok and the specs of Kubernetes as well. ENVTEST_K8S_VERSION builds those of another release.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/envtest/version.sh
. "$here/version.sh"
version=$(chosen "$here/go.mod")
programs='kube-apiserver etcd kube-scheduler kubectl kube-controller-manager helm'
[ "${1:-}" != e2e ] || programs="$programs kwok e2e.test"
store=${KUBEBUILDER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/berth/envtest/$version}

package() {
	case $1 in
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
	e2e.test) if [ -n "$made" ]; then echo berth.io/envtest/made/e2e; else echo berth.io/envtest/e2e; fi ;;
	helm) echo helm.sh/helm/v3/cmd/helm ;;
	*) echo "k8s.io/kubernetes/cmd/$1" ;;
	esac
}

# helm, kwok and the specs ask for other versions of the libraries than the servers are made of, or for more of
# them. The servers and the specs of another release than the pinned one are built from a module made for it.
module() {
	case $1 in
	helm | kwok) echo "$here/$1" ;;
	e2e.test) if [ -n "$made" ]; then echo "$made/e2e"; else echo "$here/../e2e"; fi ;;
	*) echo "${made:-$here}" ;;
	esac
}

# Of a made module, Go finds the versions of its other modules itself.
verb() {
	case $1 in
	e2e.test) echo "test -c ${made:+-mod=mod}" ;;
	helm | kwok) echo build ;;
	*) echo "build ${made:+-mod=mod}" ;;
	esac
}

made=
missing=
for program in $programs; do
	[ -x "$store/$program" ] || missing="$missing $program"
done
if [ -z "$missing" ]; then
	echo "envtest: the servers of $version are in $store"
	exit 0
fi
if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	echo "envtest: KUBEBUILDER_ASSETS names $store, which lacks$missing: put them there, or unset it to build them" >&2
	exit 1
fi
if ! command -v go >/dev/null; then
	echo "envtest: Go is needed to build$missing, and is not on PATH: install it (https://go.dev/doc/install)," \
		'or set KUBEBUILDER_ASSETS to a folder that has them' >&2
	exit 1
fi

# Clients read the version of the server; without these it has none.
flags='-s -w'
minor=$(minor "$version")
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
	flags="$flags -X $package.gitTreeState=clean"
done
# And helm says to charts, unless it is told otherwise, that they are for this version.
helm=$(sed -n 's/^[[:space:]]*helm.sh\/helm\/v3 \(v[^[:space:]]*\).*/\1/p' "$here/helm/go.mod")
flags="$flags -X helm.sh/helm/v3/internal/version.version=$helm"
flags="$flags -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1"
flags="$flags -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"
mkdir -p "$store"
if [ "$version" != "$(pinned "$here/go.mod")" ]; then
	# Go writes the sums of the modules into this folder, and checks them against its checksum database.
	made=$store/.module
	rm -rf "$made"
	mkdir -p "$made/e2e"
	cp "$here/../e2e/main_test.go" "$made/e2e"
	upstream=$(cd "$made" && go mod download -json "k8s.io/kubernetes@$version" |
		sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
	if [ ! -f "$upstream" ]; then
		echo "envtest: Go has not downloaded k8s.io/kubernetes@$version: mend what it says above, or set" \
			'ENVTEST_K8S_VERSION to a release that exists' >&2
		exit 1
	fi
	made_module "$version" "$upstream" >"$made/go.mod"
fi
# The compiler needs an eighth less time if it collects no garbage below 2 GiB, and writes no debug information,
# which the linker would drop.
: "${GOGC:=off}" "${GOMEMLIMIT:=2GiB}"
export GOGC GOMEMLIMIT
for program in $missing; do
	echo "envtest: building $program (a few minutes for the first, then less) ..."
	# Named when it is whole: an interrupted build leaves no half program behind.
	# shellcheck disable=SC2046 # `test -c` is two words
	(cd "$(module "$program")" && CGO_ENABLED=0 go $(verb "$program") -trimpath -gcflags all=-dwarf=false -ldflags "$flags" \
		-o "$store/.$program.$$" "$(package "$program")")
	mv "$store/.$program.$$" "$store/$program"
done
echo "envtest: built$missing into $store"
