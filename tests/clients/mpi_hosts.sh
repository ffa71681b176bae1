# Processes on separate hosts: network namespaces with a bridge between them, so that ranks talk by TCP.
# SPEC C3
# Open MPI alone: MPICH of Debian 12 (4.0.2, over UCX) does not always come back from MPI_Finalize after
# large messages by TCP; a C program of ten lines shows it.
# $BUILD is the build folder; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
for needed in ip unshare mpirun.openmpi; do
  command -v $needed >/dev/null || { echo "skipped: no $needed (iproute2, util-linux, openmpi-bin)"; exit 77; }
done

# In a network of our own, which goes with us, and so do all processes.
if [ "${1:-}" != inside ]; then
  own=(unshare --net --mount --pid --fork --kill-child --mount-proc)
  "${own[@]}" ip link set lo up 2>/dev/null || { echo 'skipped: no network namespaces here'; exit 77; }
  exec "${own[@]}" bash "$0" inside
fi
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
ip link add bridge0 type bridge 2>/dev/null || { echo 'skipped: no bridges here'; exit 77; }
ip address add 10.9.0.254/24 dev bridge0
ip link set bridge0 up
hosts=
for n in 1 2 3 4; do
  ip netns add host$n
  ip link add port$n type veth peer name net0 netns host$n
  ip link set port$n master bridge0 up
  ip -n host$n address add 10.9.0.$n/24 dev net0
  ip -n host$n link set net0 up
  ip -n host$n link set lo up
  hosts=$hosts,10.9.0.$n
done
# What Open MPI calls in place of ssh: agent [OPTION...] HOST COMMAND...
cat >agent <<'END'
#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done
number=${1##*.}
shift
exec ip netns exec host$number unshare --uts --ipc bash -c "hostname host$number; $*"
END
chmod +x agent

on() {
  local n=$1
  shift
  timeout 100 mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$PWD/agent" \
    --mca oob_tcp_if_include 10.9.0.0/24 --mca btl_tcp_if_include 10.9.0.0/24 --mca btl self,tcp \
    --host "${hosts#,}" --map-by node -np "$n" "$@"
}
[ "$(on 4 hostname | sort -u | wc -l)" = 4 ] || fail 'four ranks are not on four hosts'
on 4 "$BUILD/bin/mpi_ranks_test" all >all.log 2>&1 || { cat all.log >&2; fail 'four hosts'; }
on 2 "$BUILD/bin/example_halo" --small --mpi >halo.log 2>&1 || { cat halo.log >&2; fail halo; }
: >cut.log
# A cable is pulled: the calls of the ranks that are left end. What mpirun itself then does is not looked at.
on 3 "$BUILD/bin/mpi_ranks_test" cut >cut.log 2>&1 &
# seen N WORDS: whether the log has them on so many lines, within 20 s.
seen() {
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    [ "$(grep -c "$2" cut.log)" -lt "$1" ] || return 0
    sleep 0.1
  done
  cat cut.log >&2
  return 1
}
seen 1 ready || fail 'three ranks do not begin'
ip link set port2 down
# The first that says so has mpirun end the others. It may hear too late of one that waits, too.
seen 1 'has waited 2000 ms in .* for ranks\? .*1' || fail 'a host is cut off, and the others do not say so'
