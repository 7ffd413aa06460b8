#!/bin/bash
# load_image.sh TAR...: imports image tars (deploy/docker/build_local.py, docker save) into the running node's containerd.
# Pods use them with imagePullPolicy: Never, or IfNotPresent and a tag other than latest.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 1 ] || die "usage: load_image.sh TAR..."
pid_of node >/dev/null || die "no node runs in $RUN: start it with up.sh --node"
for tar in "$@"; do
  "$NODE/usr/bin/ctr" -a "$RUN/containerd.sock" -n k8s.io images import "$tar"
done
