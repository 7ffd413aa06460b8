# lib.sh: paths and helpers that the scripts of this folder share. Sourced, never run.
# shellcheck shell=bash
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)

# One build serves many beds; each bed that runs has a state folder of its own.
KVARN_BED=$(realpath -m "${KVARN_BED:-${KVARN_CACHE:-$HOME/.cache/kvarn}/bed}")
# Exported: every process of the bed carries it, which is how a pid file is checked against a reused pid.
KVARN_BED_RUN=$(realpath -m "${KVARN_BED_RUN:-$KVARN_BED/run}")
export KVARN_BED KVARN_BED_RUN

BIN=$KVARN_BED/bin            # etcd, kube-*, kubectl, helm
NODE=$KVARN_BED/node          # unpacked Debian packages of the node
RUN=$KVARN_BED_RUN            # state of the running cluster: pid files, logs, keys, etcd's data, containerd's images
PYTHON=${KVARN_BED_PYTHON:-$ROOT/.venv/bin/python}

# All ports are on loopback: API, etcd client, etcd peer, controller manager, scheduler.
API_PORT=${KVARN_BED_PORT:-6443}
ETCD_PORT=$((API_PORT + 1)) PEER_PORT=$((API_PORT + 2)) KCM_PORT=$((API_PORT + 3)) SCHED_PORT=$((API_PORT + 4))

# Addresses that exist only inside the node's own network namespace.
NODE_NAME=node1 NODE_IP=10.99.0.1
POD_CIDR=10.244.0.0/16 SERVICE_CIDR=10.96.0.0/16 API_SERVICE_IP=10.96.0.1 DNS_SERVICE_IP=10.96.0.10

say() { echo "${0##*/}: $*" >&2; }
die() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || die "run me as root"
# node.sh puts private file systems over these; a bed inside one of them would hide itself.
for folder in "$KVARN_BED" "$RUN"; do
  case $folder/ in
    /run/* | /var/run/* | /var/lib/* | /var/log/* | /proc/* | /sys/*) die "$folder: choose a folder outside /run, /var/lib and /var/log" ;;
  esac
done
# A unix socket's path holds 107 characters at most.
[ ${#RUN} -le 80 ] || die "KVARN_BED_RUN=$RUN: path too long (80 characters at most)"

# pid_of NAME: prints the pid that NAME's pid file holds, if that process lives and belongs to this bed.
pid_of() {
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 1
  [ -n "$pid" ] && grep -qzxF "KVARN_BED_RUN=$RUN" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
}

# gone PID: whether that process has ended, reaped or not.
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# wait_for SECONDS WHAT COMMAND...: retries COMMAND until it succeeds.
wait_for() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $limit ] || { say "gave up waiting for $what"; return 1; }
    sleep 0.1
  done
}

# kubectl and helm remember what kinds an address serves: kept apart, so that no other cluster's memory misleads.
export KUBECACHEDIR=$RUN/cache

# kc ARGS...: kubectl on this bed, whatever KUBECONFIG says.
kc() { "$BIN/kubectl" --kubeconfig "$RUN/kubeconfig" "$@"; }
