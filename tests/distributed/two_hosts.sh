#!/usr/bin/env bash
# two_hosts.sh LONGHAND_MPI [RANKS_OF_EACH]: trains over TCP on two "hosts" of this machine, network namespaces
# with names, addresses and a link of their own, and compares the checkpoint with that of one process. Prints
# the bytes that crossed the link. Needs root and iproute2.
set -euo pipefail
program=$(readlink -f "$1")
each=${2:-1}
here=$(dirname "$(readlink -f "$0")")
config=$(readlink -f "$here/../../examples/configs/mqar.toml")
work=$(mktemp -d)
finish() {
  ip netns delete longhand1 2>/dev/null || true
  ip netns delete longhand2 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

for i in 1 2; do
  ip netns add longhand$i
  ip -n longhand$i link set lo up
done
ip link add veth0 netns longhand1 type veth peer name veth0 netns longhand2
for i in 1 2; do
  ip -n longhand$i addr add 10.77.0.$i/24 dev veth0
  ip -n longhand$i link set veth0 up
done

# What mpirun calls in place of ssh: AGENT HOST COMMAND.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
host=\$1
shift
exec ip netns exec longhand\${host##*.} unshare --uts bash -c "hostname host\${host##*.}; \$*"
AGENT
chmod +x "$work/agent"

options=(--set train.steps=20 train.shards=8 train.batch_size=16 model.dropout=0.1 attention.type=performer
  data.length=64 data.pairs=8 data.train_size=256 data.validation_size=64 train.compare_every=5)
"$program" train "$config" --out "$work/one" --threads 1 --quiet "${options[@]}" >/dev/null

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec longhand1 unshare --uts bash -c 'hostname host1; exec "$@"' -- \
  mpirun -np $((2 * each)) -H 10.77.0.1:"$each",10.77.0.2:"$each" --map-by node --bind-to none \
  --mca plm_rsh_agent "$work/agent" --mca plm rsh --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 \
  --mca oob_tcp_if_include 10.77.0.0/24 \
  "$program" train "$config" --out "$work/two" --threads 1 "${options[@]}"
sent=$(ip -n longhand1 -s -j link show veth0 | grep -o '"tx":{"bytes":[0-9]*' | grep -o '[0-9]*$')

one=$(md5sum <"$work/one/checkpoints/last.h5") two=$(md5sum <"$work/two/checkpoints/last.h5")
echo "one process:               $one"
echo "two hosts, $each ranks of each: $two"
echo "sent by the first host: $sent bytes"
[ "$one" = "$two" ] || { echo "two_hosts.sh: the checkpoints differ" >&2; exit 1; }
