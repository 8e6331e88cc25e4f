#!/bin/bash
# slurm_node.sh COMMAND...: runs a command on a private Slurm of one node and exits with the command's exit code. The daemons
# run in separate namespaces and end with the script. Exit code 77: no Slurm can run here; stderr has the reason.
set -u
if [ "${1:-}" != --inside ]; then
  for tool in munged slurmctld slurmd sbatch squeue scontrol sinfo unshare ip; do
    command -v "$tool" > /dev/null || { echo "there is no $tool (Debian: slurmctld slurmd slurm-client munge)" >&2; exit 77; }
  done
  [ "$(id -u)" = 0 ] || { echo "a private Slurm needs root" >&2; exit 77; }
  unshare --net --uts --ipc --mount --pid --fork true 2> /dev/null || { echo "namespaces cannot be made here" >&2; exit 77; }
  exec unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc bash "$0" --inside "$@"
fi
shift
dir=$(mktemp -d /tmp/lmx_slurm.XXXXXX)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/state" "$dir/spool.node0" "$dir/tmp.node0"
hostname node0
# Slurm does not listen if loopback is the only network.
ip link set lo up
ip link add br0 type bridge && ip addr add 10.97.1.1/24 dev br0 && ip link set br0 up || exit 77
printf '127.0.0.1 localhost\n10.97.1.1 node0\n' > "$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
(umask 077; head -c 1024 /dev/urandom > "$dir/munge.key")
settings=$(dirname "$(readlink -f "$0")")/../../tools/dev/fault_check
sed "s|@FOLDER@|$dir|; s|@HEAD@|node0(10.97.1.1)|" "$settings/slurm.conf.in" > "$dir/slurm.conf"
cat >> "$dir/slurm.conf" << CONF
SchedulerParameters=sched_interval=2,bf_interval=2
KillWait=3
NodeName=node0 NodeAddr=10.97.1.1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
cp "$settings/cgroup.conf" "$dir/"
export SLURM_CONF=$dir/slurm.conf
munged --foreground --socket="$dir/munge.sock" --key-file="$dir/munge.key" --pid-file="$dir/munged.pid" \
  --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" > /dev/null 2>&1 &
for _ in $(seq 600); do [ -S "$dir/munge.sock" ] && break; sleep 0.1; done
slurmctld -D -i > /dev/null 2>&1 &
slurmd -D > /dev/null 2>&1 &
SECONDS=0
while [ "$SECONDS" -lt 60 ]; do
  [ "$(timeout 10 sinfo -h -N -t idle -o %N 2> /dev/null)" = node0 ] && up=1 && break
  sleep 0.1
done
[ -n "${up:-}" ] || { echo "the private Slurm did not come up:" >&2; tail -n 5 "$dir"/*.log >&2; exit 77; }
"$@"
code=$?
exit $code
