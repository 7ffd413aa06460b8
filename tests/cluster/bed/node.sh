#!/bin/bash
# node.sh: the node. Started by up.sh, never by hand, as the first process (pid 1) of own network, mount and process
# namespaces. That one choice is what keeps the machine clean: kill this process and the kernel ends every container
# and shim, drops every mount and removes every interface of the node, with nothing to look for and nothing to forget.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Of the machine's file systems the node sees all but these, which it would otherwise litter.
private_files() {
  mount --make-rshared /                    # pods may ask for mount propagation; it ends at this namespace
  mount -t tmpfs -o mode=755 tmpfs /run     # containerd's state, pods' network namespaces, the iptables lock
  mount -t tmpfs -o mode=755 tmpfs /var/lib # kubelet's device plugins, CNI's results and addresses
  mkdir -p /run/lock /var/lib/kubelet "$RUN"/kubelet "$RUN"/varlog "$RUN"/sysctl
  mount --bind "$RUN/kubelet" /var/lib/kubelet
  mount --bind "$RUN/varlog" /var/log       # pods' logs
}

# kubelet insists on these kernel-wide settings and would set them on the machine, where they would stay.
# Files with the values it looks for, laid over them, satisfy it and change nothing.
pretend_sysctls() {
  local setting key
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    key=${setting%=*}
    echo "${setting#*=}" >"$RUN/sysctl/${key//\//.}"
    mount --bind "$RUN/sysctl/${key//\//.}" "/proc/sys/$key"
  done
}

# A bridge without ports stands for the node's network card (some kernels have no dummy device). The default route
# ends there: nothing leaves this namespace, and nothing gets in but through fwd.py.
network() {
  ip link set lo up
  ip link add node0 type bridge
  ip addr add "$NODE_IP/24" dev node0
  ip link set node0 up
  ip route add default dev node0
  echo 1 >/proc/sys/net/ipv4/ip_forward
  # A pod that reaches a neighbour through a ClusterIP gets its answer over the bridge: iptables must see that too.
  echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
}

write_configs() {
  mkdir -p /run/cni
  cat >/run/cni/10-bridge.conflist <<S
{"cniVersion": "0.4.0", "name": "kvarn-bed", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni/addresses"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
S
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc dies of lowering it ("can't get final child's PID from pipe").
  # The socket lies in the bed's folder so that load_image.sh reaches it from outside.
  cat >/run/containerd.toml <<S
version = 2
root = "$RUN/containerd"
state = "/run/containerd"
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$NODE/usr/lib/cni"
    conf_dir = "/run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$NODE/usr/sbin/runc"
        SystemdCgroup = false
S
  : >/run/empty-resolv.conf
  cat >/run/kubelet.yaml <<S
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $RUN/pki/node.crt
tlsPrivateKeyFile: $RUN/pki/node.key
cgroupDriver: cgroupfs
failSwapOn: false
clusterDNS: [$DNS_SERVICE_IP]
clusterDomain: cluster.local
resolvConf: /run/empty-resolv.conf
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
# The first report says NotReady; at the usual 10 s a second one would make every start wait.
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 5m
volumePluginDir: /var/lib/kubelet/volume-plugins
S
}

# part NAME COMMAND...: starts one of the node's programs. Its pid file holds the pid inside this namespace.
part() {
  local name=$1
  shift
  "$@" >"$RUN/log/$name.log" 2>&1 </dev/null &
  names[$!]=$name
}

ctr() { "$NODE/usr/bin/ctr" -a "$RUN/containerd.sock" -n k8s.io "$@"; }

declare -A names
export PATH=$NODE/wrap:$NODE/usr/bin:$NODE/usr/sbin:$PATH
private_files
pretend_sysctls
network
write_configs
: >"$RUN/node.network"        # up.sh starts the control plane in this network once it sees this

rm -f "$RUN/containerd.sock"
part containerd containerd -c /run/containerd.toml
wait_for 20 containerd ctr version
ctr images ls -q | grep -qx localhost/pause:1 || ctr images import "$KVARN_BED/images/pause.tar"
wait_for 60 "the API server" kc get --raw /readyz

# Without this, kubelet spends six seconds of every start asking a cloud for credentials.
export AWS_EC2_METADATA_DISABLED=true
part kubelet "$BIN/kubelet" --config=/run/kubelet.yaml --kubeconfig="$RUN/node.kubeconfig" \
  --hostname-override=$NODE_NAME --node-ip=$NODE_IP \
  --container-runtime=remote --container-runtime-endpoint="unix://$RUN/containerd.sock" --image-service-endpoint="unix://$RUN/containerd.sock"
part kube-proxy "$BIN/kube-proxy" --kubeconfig="$RUN/proxy.kubeconfig" --hostname-override=$NODE_NAME \
  --proxy-mode=iptables --cluster-cidr=$POD_CIDR --metrics-bind-address=127.0.0.1:10249 --healthz-bind-address=127.0.0.1:10256 \
  --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
KUBECONFIG=$RUN/kubeconfig part dns "$PYTHON" "$HERE/dns.py" $NODE_IP 10053

# Being pid 1, bash also reaps what containers orphan. One program lost means the node is lost: say which, and end.
ended=
wait -n -p ended || true
echo "node.sh: ${names[$ended]} ended, so the node ends; see $RUN/log/${names[$ended]}.log" >&2
exit 1
