#!/bin/bash
# down.sh [--forget | --wipe]: stops what up.sh started, by its pid files. Harmless when nothing runs.
#   (nothing)  objects and images are there again at the next up.sh
#   --forget   all state goes but the node's images, which take long to load
#   --wipe     all state goes; only what build.sh built stays
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
  '' | --forget | --wipe) ;;
  *) die "usage: down.sh [--forget | --wipe]" ;;
esac

stop() { # NAME: asks, and insists after 5 s
  local pid
  if pid=$(pid_of "$1"); then
    kill "$pid"
    wait_for 5 "$1" gone "$pid" 2>/dev/null || { kill -KILL "$pid"; wait_for 5 "$1" gone "$pid"; }
  fi
  rm -f "$RUN/$1.pid"
}

# The node goes as if its power failed: killing its first process ends every process of its namespaces, and with the
# last of them go its mounts and its network. unshare --kill-child passes the signal on.
stop_node() {
  local outer inner
  if outer=$(pid_of node); then
    inner=$(cat "/proc/$outer/task/$outer/children")
    kill -KILL "$outer"
    wait_for 20 "the node's processes to end" gone "${inner// /}"
  fi
  rm -f "$RUN/node.pid" "$RUN/node.network" "$RUN/containerd.sock"*
  # Control groups outlive their processes. Only empty ones can be removed.
  find /sys/fs/cgroup -maxdepth 2 -type d -name kubepods 2>/dev/null | while read -r group; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}

[ -d "$RUN" ] || { say "nothing to stop in $RUN"; exit 0; }
stop fake_node
stop fwd
stop_node
for name in scheduler controller-manager apiserver etcd; do stop $name; done

if [ -n "${1:-}" ]; then
  # Never delete through a mount: it could lead out of the bed.
  if grep -F " $RUN/" /proc/self/mounts >&2; then die "still mounted, so nothing is wiped"; fi
  case $1 in
    --forget) find "$RUN" -mindepth 1 -maxdepth 1 ! -name containerd -exec rm -rf --one-file-system {} + ;;
    --wipe) rm -rf --one-file-system "$RUN" ;;
  esac
fi
say "stopped${1:+, ${1#--}}"
