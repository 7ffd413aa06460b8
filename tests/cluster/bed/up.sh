#!/bin/bash
# up.sh [--node | --fake-nodes N]: starts the cluster that build.sh built, waits until it is ready, and prints the
# exports that point kubectl, helm and every client at it. Only these go to standard output: eval "$(./up.sh ...)"
#   (nothing)       control plane alone on loopback: pods stay Pending
#   --fake-nodes N  plus N nodes of 8 GPUs each, where pods turn Ready without running anything (fake_node.py)
#   --node          plus one real node; everything then runs in the node's network namespace, and fwd.py carries the API
# KVARN_BED_RUN holds its state: beds with own ports and state folders run side by side, but only one real node a machine.
# KVARN_BED_PORT (default 6443) and the four ports after it must be free on loopback.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mode=bare fake_count=0
case ${1:-} in
  '') ;;
  --node) mode=node ;;
  --fake-nodes) mode=fake fake_count=${2:-} ;;
  *) die "usage: up.sh [--node | --fake-nodes N]" ;;
esac
[[ $fake_count =~ ^[0-9]+$ ]] && { [ $mode != fake ] || [ "$fake_count" -ge 1 ]; } || die "usage: up.sh --fake-nodes N, with N of 1 or more"

# ---- may we start?

[ -x "$BIN/kube-apiserver" ] && [ -x "$BIN/kubectl" ] && [ -e "$KVARN_BED/stamps/kube-scheduler" ] || die "not built: run build.sh"
[ $mode != node ] || [ -e "$KVARN_BED/stamps/pause_image" ] || die "no node built: run build.sh --node"
[ $mode = bare ] || "$PYTHON" -c 'import kubernetes' || die "$PYTHON cannot import kubernetes"

for file in "$RUN"/*.pid; do
  [ -e "$file" ] || continue
  name=$(basename "$file" .pid)
  pid=$(pid_of "$name") && die "already running in $RUN ($name, pid $pid): use it, or stop it with down.sh"
  rm -f "$file"
done
listening() { "$PYTHON" -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)' "$1" 2>/dev/null; }
for port in $API_PORT $ETCD_PORT $PEER_PORT $KCM_PORT $SCHED_PORT; do
  listening "$port" && die "port $port on 127.0.0.1 is taken: set KVARN_BED_PORT to another"
done

# From here on a failure takes down whatever has started.
trap 'rc=$?; trap - EXIT; [ $rc = 0 ] || { say "FAILED; last lines of each log that changed in the last minute:"; find "$RUN/log" -name "*.log" -mmin -1 -exec tail -n 4 {} + >&2; "$BASH" "$HERE/down.sh"; exit $rc; }' EXIT

# ---- keys and kubeconfigs, made once and kept until down.sh --wipe

mkdir -p "$RUN/log" "$RUN/pki"
chmod 700 "$RUN"

certificate() { # NAME SUBJECT ALTERNATIVE-NAMES
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out "$1.crt" \
    -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s' "$3") 2>/dev/null
}

make_keys() {
  cd "$RUN/pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 3650 \
    -subj /CN=kvarn-bed -addext keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign 2>/dev/null
  certificate server /CN=kube-apiserver "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$NODE_IP,IP:$API_SERVICE_IP"
  certificate admin /O=system:masters/CN=admin DNS:admin
  certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client DNS:kubelet-client
  certificate front-proxy /CN=front-proxy-client DNS:front-proxy
  certificate controller-manager /CN=system:kube-controller-manager DNS:controller-manager
  certificate scheduler /CN=system:kube-scheduler DNS:scheduler
  certificate proxy /CN=system:kube-proxy DNS:proxy
  certificate node /O=system:nodes/CN=system:node:$NODE_NAME "DNS:$NODE_NAME,IP:$NODE_IP,IP:127.0.0.1"
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  touch done
}
[ -e "$RUN/pki/done" ] || (make_keys)

kubeconfig() { # FILE CERTIFICATE: keys are embedded, so that the file can be copied elsewhere
  local pki=$RUN/pki
  cat >"$RUN/$1" <<S
apiVersion: v1
kind: Config
clusters: [{name: kvarn-bed, cluster: {server: "https://127.0.0.1:$API_PORT", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: kvarn-bed, user: {client-certificate-data: $(base64 -w0 "$pki/$2.crt"), client-key-data: $(base64 -w0 "$pki/$2.key")}}]
contexts: [{name: kvarn-bed, context: {cluster: kvarn-bed, user: kvarn-bed, namespace: default}}]
current-context: kvarn-bed
S
}
kubeconfig kubeconfig admin
for user in controller-manager scheduler proxy node; do kubeconfig $user.kubeconfig $user; done

# ---- processes

in_network=()                 # how to enter the network that the control plane runs in; empty: the machine's own

start() { # NAME COMMAND...
  local name=$1
  shift
  setsid "${in_network[@]}" "$@" >"$RUN/log/$name.log" 2>&1 </dev/null &
  echo $! >"$RUN/$name.pid"
  disown                      # bash need not report its end
}

# ready SECONDS NAME COMMAND...: waits for COMMAND, but gives up at once when the process NAME is gone. pid_of does not
# serve here: between fork and exec a process shows no environment for a moment.
ready() {
  local limit=$1 name=$2 pid
  pid=$(cat "$RUN/$2.pid")
  shift 2
  ends_or_ready() { gone "$pid" || "$@"; }
  wait_for "$limit" "$name" ends_or_ready "$@"
  ! gone "$pid" || die "$name ended: see $RUN/log/$name.log"
}

healthy() { "${in_network[@]}" curl -skf -m 2 "https://127.0.0.1:$1/healthz"; }

began=$(date -u +%Y-%m-%dT%H:%M:%SZ)
bind=127.0.0.1 reconciler=none
if [ $mode = node ]; then
  rm -f "$RUN/node.network"
  start node unshare --net --mount --pid --fork --kill-child --mount-proc "$BASH" "$HERE/node.sh"
  ready 10 node test -e "$RUN/node.network"
  start fwd "$PYTHON" "$HERE/fwd.py" "127.0.0.1:$API_PORT" "127.0.0.1:$API_PORT" "/proc/$(pid_of node)/ns/net"
  in_network=(nsenter "--net=/proc/$(pid_of node)/ns/net")
  # All addresses, but of the node's namespace: loopback, the node's address and the Service address.
  bind=0.0.0.0 reconciler=lease
fi

start etcd "$BIN/etcd" --name kvarn-bed --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn --logger zap \
  --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
  --initial-cluster "kvarn-bed=http://127.0.0.1:$PEER_PORT"

pki=$RUN/pki
start apiserver "$BIN/kube-apiserver" --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
  --bind-address=$bind --secure-port="$API_PORT" $([ $mode != node ] || echo --advertise-address=$NODE_IP) --endpoint-reconciler-type=$reconciler \
  --service-cluster-ip-range=$SERVICE_CIDR --authorization-mode=Node,RBAC --allow-privileged=true --cert-dir="$RUN/pki" \
  --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" \
  --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
  --kubelet-preferred-address-types=InternalIP --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
  --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy-client \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-
ready 60 apiserver kc get --raw /readyz

# --port=0 turns off the plain HTTP port, which would listen on every address of the machine. The default rate of
# 20 requests a second to the API would make the controllers' start, and their work in tests, slow.
start controller-manager "$BIN/kube-controller-manager" --port=0 --bind-address=127.0.0.1 --secure-port=$KCM_PORT --leader-elect=false \
  --kubeconfig="$RUN/controller-manager.kubeconfig" --authentication-kubeconfig="$RUN/controller-manager.kubeconfig" --authorization-kubeconfig="$RUN/controller-manager.kubeconfig" \
  --use-service-account-credentials=true --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
  --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
  --cluster-cidr=$POD_CIDR --service-cluster-ip-range=$SERVICE_CIDR --allocate-node-cidrs=false --kube-api-qps=200 --kube-api-burst=400 --flex-volume-plugin-dir="$RUN/volume-plugins"
start scheduler "$BIN/kube-scheduler" --port=0 --bind-address=127.0.0.1 --secure-port=$SCHED_PORT --leader-elect=false \
  --kubeconfig="$RUN/scheduler.kubeconfig" --authentication-kubeconfig="$RUN/scheduler.kubeconfig" --authorization-kubeconfig="$RUN/scheduler.kubeconfig"
ready 30 controller-manager healthy $KCM_PORT
ready 30 scheduler healthy $SCHED_PORT
# Until this account exists, every pod is refused.
ready 30 controller-manager kc get serviceaccount default

# ---- nodes

case $mode in
  bare) wanted= ;;
  fake) wanted=$(seq -f 'node/fake-%g' "$fake_count") ;;
  node) wanted=node/$NODE_NAME ;;
esac
# Nodes of an earlier start in another mode would hold on to their pods.
stale=$(kc get nodes -o name | grep -vxF "${wanted:-none}" || true)
[ -z "$stale" ] || kc delete $stale >&2

# Ready, and said so since this start: what the last start left in etcd does not count.
ready_since_start() {
  kc get "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}' |
    awk -v began="$began" '{ exit !($1 == "True" && $2 >= began) }'
}
all_ready() { local node; for node in $wanted; do ready_since_start "$node" || return 1; done; }
if [ $mode = fake ]; then
  KUBECONFIG=$RUN/kubeconfig start fake_node "$PYTHON" "$HERE/fake_node.py" "$fake_count"
  ready 30 fake_node all_ready
elif [ $mode = node ]; then
  kc apply -f - >/dev/null <<S
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: $DNS_SERVICE_IP, ports: [{name: dns, port: 53, protocol: UDP, targetPort: 10053}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: kube-dns, namespace: kube-system}
subsets: [{addresses: [{ip: $NODE_IP}], ports: [{name: dns, port: 10053, protocol: UDP}]}]
S
  ready 60 node all_ready
  ready 20 node "${in_network[@]}" curl -sf -m 2 http://127.0.0.1:10256/healthz # kube-proxy has written its rules
  ready 20 node grep -q 'dns up' "$RUN/log/dns.log"
fi

say "ready in $SECONDS s ($mode)"
echo "export KUBECONFIG=$RUN/kubeconfig KUBECACHEDIR=$KUBECACHEDIR"
echo "export PATH=$BIN:\$PATH"
