# Processes under Open MPI and MPICH: every call of a group, what happens where a rank gives up, is
# late or dies, the examples of several ranks, and `gradus run --ranks mpi`.
# SPEC C3
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours. $RANKS: which
# numbers of ranks.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
RANKS=${RANKS:-1 2 3 4}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launchers=()
if command -v mpirun.openmpi >/dev/null; then launchers+=('mpirun.openmpi --oversubscribe'); fi
if command -v mpiexec.mpich >/dev/null; then launchers+=(mpiexec.mpich); fi
[ ${#launchers[@]} -gt 0 ] || { echo 'skipped: no MPI (openmpi-bin, mpich)'; exit 77; }
test=$BUILD/bin/mpi_ranks_test
export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
mkdir mpich
ln -s "$(ldconfig -p | awk '/libmpich\.so\.12 /{print $NF; exit}')" mpich/libmpi.so.12 || true
export LD_LIBRARY_PATH=$PWD/mpich${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# on N COMMAND...: that many processes of it, at most 60 s.
on() {
  local n=$1
  shift
  timeout 60 $launcher -np "$n" "$@"
}

cat >sum.ir <<'END'
graph sum {
  size R = ranks(data) from 1
  stage 0 (%x: f64[4] varying(data), %w: f64[4]) {
    %p = mul(%x, %w)
    %own = sum(%p)
    %y = all_reduce(%own) {group = "data"}
    %all = all_gather(%own) {group = "data", ranks = R}
    return y = %y, all = %all
  }
}
END
cat >other.ir <<'END'
graph other {
  stage 0 (%x: f64[4] varying(data), %w: f64[4]) {
    %own = sum(%x)
    %y = all_reduce(%own) {group = "data"}
    return y = %y
  }
}
END

for launcher in "${launchers[@]}"; do
  echo "$launcher"
  for n in $RANKS; do
    on "$n" "$test" all >all.log 2>&1 || { cat all.log >&2; fail "$launcher, $n ranks"; }
  done
  # Who gives up or is late is named by all others, whose calls end. A launcher may say more, and end
  # with a status of its own, where processes end without MPI_Finalize.
  # Time limits hold on cores that others use, too.
  for mode in abandon late; do
    busy=()
    for ((core = 2 * $(nproc); core > 0; --core)); do
      timeout 60 sh -c 'while :; do :; done' &
      busy+=($!)
    done
    on 3 "$test" $mode >$mode.log 2>&1 || true
    kill "${busy[@]}"
    wait "${busy[@]}" 2>/dev/null || true
    ! grep FAILED $mode.log >&2 || fail "$launcher: $mode"
    grep -q 'was told' $mode.log || { cat $mode.log >&2; fail "$launcher: $mode: nobody was told"; }
  done
  # A rank dies before each call of a run in turn; the run without a death is the last one.
  for ((call = 0; ; ++call)); do
    code=0
    on 3 "$test" die $call >die.log 2>&1 || code=$?
    [ $code -ne 0 ] || break
    [ $code -ne 124 ] || { cat die.log >&2; fail "$launcher: a rank died in call $call, and others hang"; }
    [ $call -lt 30 ] || { cat die.log >&2; fail "$launcher: a run without a death fails"; }
  done
  [ $call -ge 13 ] || fail "$launcher: a run with a death in call $call ended as if there were none"

  # The program's gradients are those of all ranks; each rank writes its own file.
  "$BUILD/bin/gradus" grad sum.ir --order 1 -o sum1.ir
  on 2 "$BUILD/bin/gradus" run sum1.ir --random 3 --ranks mpi --outputs 'out%r.npz' >run.log 2>&1 ||
    { cat run.log >&2; fail "$launcher: gradus run"; }
  "$PYTHON" - <<'END' || fail "$launcher: gradus run gives something else on each rank"
import numpy
a, b = numpy.load("out0.npz"), numpy.load("out1.npz")
assert a["y"] == b["y"] and (a["all"] == b["all"]).all() and a["all"].shape == (2,)
assert (a["d1_w"] == b["d1_w"]).all()
assert abs(a["all"].sum() - a["y"]) < 1e-12
END
  # Each rank goes on from its own state.
  on 2 "$BUILD/bin/gradus" run sum1.ir --random 3 --ranks mpi --stages 1 --save-state 'rank%r.state' \
    >save.log 2>&1 || { cat save.log >&2; fail "$launcher: gradus run --save-state"; }
  on 2 "$BUILD/bin/gradus" run sum1.ir --random 3 --ranks mpi --resume 'rank%r.state' \
    --outputs 'resumed%r.npz' >resume.log 2>&1 || { cat resume.log >&2; fail "$launcher: --resume"; }
  "$PYTHON" - <<'END' || fail "$launcher: a rank went on from another one's state"
import numpy
for rank in (0, 1):
    whole, resumed = numpy.load(f"out{rank}.npz"), numpy.load(f"resumed{rank}.npz")
    assert len(resumed) and all((whole[name] == resumed[name]).all() for name in resumed)
assert open("rank0.state", "rb").read() != open("rank1.state", "rb").read()
END
  on 2 "$BUILD/bin/gradus" run sum1.ir --random 3 --ranks mpi --stages 1 --save-state one.state \
    >one.log 2>&1 && fail "$launcher: two ranks saved one state"
  grep -q 'each rank has a state of its own' one.log || { cat one.log >&2; fail "$launcher: one.state"; }
  # Ranks that begin different programs say so.
  code=0
  on 1 "$BUILD/bin/gradus" run sum.ir --random 3 --ranks mpi : -np 1 "$BUILD/bin/gradus" run \
    other.ir --random 3 --ranks mpi >differ.log 2>&1 || code=$?
  [ $code -ne 0 ] && [ $code -ne 124 ] || fail "$launcher: two programs: status $code"
  grep -q 'begins another program' differ.log || { cat differ.log >&2; fail "$launcher: two programs"; }

  # Communicators of mpi4py, whose wheel finds Open MPI by its name, and MPICH by that of its ABI.
  abi=openmpi
  [ "$launcher" != mpiexec.mpich ] || abi=mpich
  if MPI4PY_MPIABI=$abi "$PYTHON" -c 'import gradus, mpi4py' 2>/dev/null; then
    MPI4PY_MPIABI=$abi on 3 "$PYTHON" "$GRADUS_SOURCE_DIR/tests/clients/mpi_of_python.py" 3 >mpi4py.log 2>&1 ||
      { cat mpi4py.log >&2; fail "$launcher: mpi4py"; }
  else
    echo "$launcher: not tried without mpi4py and the Python module: its communicators"
  fi

  for example in data_parallel halo pipeline; do
    on 2 "$BUILD/bin/example_$example" --small --mpi >$example.log 2>&1 ||
      { cat $example.log >&2; fail "$launcher: $example"; }
  done
done
