# gradus run --symbols: gdb and perf know kernels by name, and by the program's lines.
# SPEC F8
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >p.ir <<'PROGRAM'
graph p {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %t = tanh(%h)
    %y = add(%t, %x)
    %s = sum(%y)
    return %s, %y
  }
}
PROGRAM

refuses 2 'add --fusion first' run p.ir --random 1 --set N=4096 --symbols

# Where no kernels can be made, the rest says nothing.
grep -q avx2 /proc/cpuinfo || { finish; exit 0; }

runs 0 run p.ir --random 1 --set N=4096 --fusion first --outputs plain.npz
runs 0 run p.ir --random 1 --set N=4096 --fusion first --symbols --outputs named.npz \
  --dump-after fusion --kernels kept
cmp -s plain.npz named.npz || fail '--symbols gave other bits'
says out "nest 1 {  # of $PWD/p.ir" 'tanh(%v2) : f64 in f64  # 4:10'

# Another place is another kernel; the same place is found again.
again() { runs 0 run "$1" --random 1 --set N=4096 --fusion first --symbols --kernels kept --stats; }
again p.ir
says out 'kernels: 0 compiled in' '1 loaded'
(echo; cat p.ir) >q.ir
again q.ir
says out 'kernels: 1 compiled in'

# perf reads the map file of a process: one line a kernel.
"$GRADUS" run p.ir --random 1 --set N=4096 --fusion first --symbols >out 2>err &
wait $! || fail "it ended with $?"
map=/tmp/perf-$!.map
grep -Eq '^[0-9a-f]+ [1-9a-f][0-9a-f]* gradus_mul_tanh_add_by_rows_[0-9a-f]{8}$' "$map" ||
  fail 'no such line in the map file'
[ "$(stat -c %a "$map")" = 600 ] || fail 'others may read the map file'
rm -f "$map"

# A stage of known sizes is one function, whose lines are the program's, one after the other.
cat >s.ir <<'PROGRAM'
graph s {
  stage 0 (%x: f64[2, 4], %w: f64[3, 4]) {
    %h = matmul(%x, %w) {transpose_b = true}
    %t = tanh(%h)
    %c = cumsum(%t) {dim = 0}
    %y = mul(%c, %t)
    return %y
  }
}
PROGRAM
runs 0 run s.ir --random 1 --fusion first --symbols --dump-after fusion --outputs named.npz
says out 'stage 0 is one function of loops (2), products (1), sums and copies (0), calls (1 cumsum)'
"$GRADUS" run s.ir --random 1 --fusion first --symbols >out 2>err & wait $! || fail "it ended with $?"
grep -Eq '^[0-9a-f]+ [1-9a-f][0-9a-f]* gradus_stage_of_4_[0-9a-f]{8}_product_0$' /tmp/perf-$!.map ||
  fail 'no line for the product in the map file'
rm -f /tmp/perf-$!.map
runs 0 run s.ir --random 1 --outputs plain.npz
cmp -s plain.npz named.npz || fail '--symbols gave other bits'

# In gdb: a breakpoint at a line of the program, and the names in a backtrace.
gdb_runs() { gdb -nx -batch "$@" 2>&1; }
if ! command -v gdb >/dev/null || ! gdb_runs -ex run true | grep -q 'exited normally'; then
  echo 'gdb is not there, or may not run programs here: its part is left out'
  finish
  exit 0
fi
ASAN_OPTIONS=detect_leaks=0 gdb_runs -ex 'set breakpoint pending on' -ex 'set debuginfod enabled off' \
  -ex 'break p.ir:4' -ex run -ex backtrace -ex list -ex next -ex next -ex 'info symbol $pc' \
  --args "$GRADUS" run p.ir --random 1 --set N=4096 --fusion first --symbols --threads 1 >gdb.txt
rm -f /tmp/perf-"$(sed -n 's/.*LWP \([0-9]*\).*/\1/p' gdb.txt | head -1)".map
grep -q 'gradus_mul_tanh_add_by_rows_[0-9a-f]* () at .*p.ir:4' gdb.txt || fail 'gdb did not stop at p.ir:4'
grep -q '%t = tanh(%h)' gdb.txt || fail 'gdb does not show the line'
ASAN_OPTIONS=detect_leaks=0 gdb_runs -ex 'set breakpoint pending on' -ex 'set debuginfod enabled off' \
  -ex 'break s.ir:4' -ex run -ex backtrace -ex next \
  --args "$GRADUS" run s.ir --random 1 --fusion first --symbols --threads 1 >>gdb.txt
rm -f /tmp/perf-"$(sed -n 's/.*LWP \([0-9]*\).*/\1/p' gdb.txt | tail -1)".map
grep -q 'gradus_stage_of_4_[0-9a-f]* () at .*s.ir:4' gdb.txt || fail 'gdb did not stop at s.ir:4'
grep -q '^5.*%c = cumsum' gdb.txt || fail 'gdb did not step to the next line'
[ "$failures" = 0 ] || cat gdb.txt

finish
