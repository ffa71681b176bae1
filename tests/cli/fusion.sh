# gradus run: groups of instructions as compiled kernels.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >p.ir <<'EOF'
graph p {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %t = tanh(%h)
    %y = add(%t, %x)
    %s = sum(%y)
    return %s, %y
  }
}
EOF

# The bits are those of the interpreter, whichever way.
runs 0 run p.ir --random 1 --set N=4096 --outputs plain.npz
cp out plain.txt
for mode in off behind first; do
  runs 0 run p.ir --random 1 --set N=4096 --outputs fused.npz --fusion $mode --repeat 3
  cmp -s plain.npz fused.npz || fail "--fusion $mode gave other bits"
done
runs 0 run p.ir --random 1 --set N=4096 --engine fused
cmp -s out plain.txt || fail '--engine fused printed something else'
runs 0 run p.ir --random 1 --set N=4096 --engine interpret --stats
says out 'kernels: 0 compiled in 0.000 s, 0 loaded'
refuses 2 ' excludes --' run p.ir --engine fused --fusion first
refuses 2 '--fusion' run p.ir --fusion perhaps
refuses 2 '--dump-after' run p.ir --dump-after nothing

runs 0 run p.ir --random 1 --set N=4096 --fusion off --stats
says out 'kernels: 0 compiled in 0.000 s, 0 loaded'
for step in fusion cuda aarch64; do
  refuses 2 "--dump-after $step: there are no kernels without fusion; add --fusion first" \
    run p.ir --random 1 --set N=4096 --dump-after $step
done

# What is slow, where it is much.
cat >slow.ir <<'EOF'
graph slow {
  stage 0 (%x: f32[N], %t: f32[K], %i: i64[N]) {
    %y = index_add(%t, %i, %x) {dim = 0}
    %p = polygamma(%x) {n = 2}
    %n = nonzero(%x) {count = M}
    return %y, %p, %n
  }
}
EOF
sed '/nonzero/d; s/, %n$//' slow.ir >known.ir
runs 0 run known.ir --random 1 --set N=70000 --set K=10 --fusion first --stats
says out 'slow: index_add @3:10: 70000 elements are written in index order, on one thread'
says out 'slow: polygamma @4:10: 70000 elements of tens of nanoseconds each, without vector'
runs 0 run known.ir --random 1 --set N=700 --set K=10 --fusion first --stats
! grep -q '^slow' out || fail 'few elements are called slow'
runs 0 run slow.ir --random 1 --set N=70000 --set K=10 --fusion first --stats
says out 'slow paths are not known before the run'

# The plan after each step of making it.
runs 0 run p.ir --random 1 --set N=4096 --dump-after bind
says out '  1 %t = tanh: pointwise {call = tanh, compute = f64, ' 'of (%h, %t)' \
  '  3 %s = sum: reduce {reducer = sum, in = f64, out = f64, '
runs 0 run p.ir --random 1 --set N=4096 --dump-after place
says out '  %h in bytes [0, 32768) from instruction 0 to 1'

# What stages take of memory, and of what.
runs 0 disasm p.ir --set N=4096 --dump-after memory
says out 'stage 0: a buffer of' 'stage 0 takes most at instruction 1 tanh @4:10' \
  '32768 bytes %t: f64[N], made by 1 tanh @4:10, last read by 2 add @5:10'
refuses 2 '--dump-after' disasm p.ir --set N=4096 --dump-after fusion
refuses 2 '--fusion' disasm p.ir --set N=4096 --fusion behind
refuses 1 "needs the size of 'N'" disasm p.ir --dump-after memory

# Where no kernels can be made, the rest says nothing.
grep -q avx2 /proc/cpuinfo || { finish; exit 0; }

# What the cost model expects of groups, beside what they take.
runs 0 run p.ir --random 1 --set N=4096 --dump-after group --times
says out 'kernel: saves ' '; measured ' ' as a kernel'
refuses 2 'add --dump-after group' run p.ir --random 1 --set N=4096 --times

# SPEC F8
for step in group make place; do
  runs 0 run p.ir --random 1 --set N=4096 --fusion first --dump-after $step
  says out '  3 %s = sum: group 0: nest 1 {' '  2 %y = add: group 0'
done
runs 0 run p.ir --random 1 --set N=4096 --fusion first --dump-after fusion --stats \
  --profile trace.json
says out 'stage 0, instructions 0 mul @3:10, 1 tanh @4:10, 2 add @5:10' 'nest 1 {' \
  '%v3 = tanh(%v2) : f64 in f64' 'store %v4' 'kernels: 1 compiled in'
says trace.json '"name": "mul @3, tanh @4, add @5, sum @6"'
# One kernel has no memory but for what it gives.
runs 0 disasm p.ir --set N=4096 --fusion first --dump-after memory
says out 'stage 0: a buffer of 0 bytes' '32768 bytes %y: f64[N], made by 3 sum @6:10'
# Sources for CUDA, which nobody compiles here, name the program's lines.
runs 0 run p.ir --random 1 --set N=4 --fusion first --dump-after cuda
says out 'extern "C" __global__' '// %v2 = mul(%v0, %v1) : f64 in f64  # line 3: %h = mul(%x, %w)'
# Assembly for machines that this one may not be.
runs 0 run p.ir --random 1 --set N=4 --fusion first --dump-after aarch64
says out '.2d' 'gradus_mul_tanh_add_'
runs 0 run p.ir --random 1 --set N=4096 --fusion first --dump-after x86-64-v4
says out '%zmm' 'gradus_mul_tanh_add_'
refuses 2 '--dump-after' run p.ir --random 1 --set N=4 --fusion first --dump-after x86-64

# A folder serves the next process; what is damaged is compiled anew.
# SPEC F4
run_kept() {
  runs 0 run p.ir --random 1 --set N=4096 --fusion first --kernels kept --stats --outputs fused.npz
  cmp -s plain.npz fused.npz || fail 'kept kernels gave other bits'
}
run_kept
says out 'kernels: 1 compiled in'
run_kept
says out 'kernels: 0 compiled in' '1 loaded'
for f in kept/*; do
  printf 'damage' | dd of="$f" bs=1 seek=200 conv=notrunc 2>dd.txt
done
run_kept
says out 'kernels: 1 compiled in'
run_kept
says out '1 loaded'
chmod 777 kept
"$GRADUS" run p.ir --random 1 --set N=4096 --fusion first --kernels kept --stats >out 2>err
says err 'warning: kernels are not kept: kept belongs to another user or can be written by others'
says out 'kernels: 1 compiled in'

finish
