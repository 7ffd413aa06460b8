#!/bin/bash
# load_image.sh TAR...: imports image tars (deploy/docker/build_local.py, docker save; - is standard input) into the
# running node's containerd. Pods use them with imagePullPolicy: Never, or IfNotPresent and a tag other than latest.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 1 ] || die "usage: load_image.sh TAR..."
pid_of node >/dev/null || die "no node runs in $RUN: start it with up.sh --node"
ctr() { "$NODE/usr/bin/ctr" -a "$RUN/containerd.sock" -n k8s.io "$@"; }

for tar in "$@"; do ctr images import "$tar"; done

# An image that lost its name to a newer one is kept by the reference that kubelet's runtime adds to each (sha256:...).
ctr images ls | awk 'NR > 1 { if ($1 ~ /^sha256:/) held[$1] = $3; else named[$3] = 1 }
  END { for (reference in held) if (!(held[reference] in named)) print reference }' |
  while read -r reference; do ctr images rm "$reference" >/dev/null; done
