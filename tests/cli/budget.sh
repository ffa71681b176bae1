# --memory-budget: what is held between stages fits, and no bit changes.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >swing.ir <<'EOF'
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y
  }
}
EOF
runs 0 grad swing.ir --order 3 -o p.ir

runs 0 disasm p.ir --set N=1000
says out 'stage 1: a buffer of 8000 bytes, 16000 held'
runs 0 disasm p.ir --set N=1000 --memory-budget 8000
says out 'stage 0: a buffer of 8000 bytes, 8000 held' 'stage 1: a buffer of 16000 bytes, 0 held' \
  'stage 2: a buffer of 56000 bytes, 0 held'
refuses 1 "a memory budget needs the size of 'N'" \
  disasm p.ir --memory-budget 8000

# Sizes follow from the inputs that are there.
runs 0 run p.ir --random 1 --set N=1000 --outputs plain.npz
cp out plain.txt
for budget in 0 8000 16000 1000000; do
  for fusion in off first; do
    grep -q avx2 /proc/cpuinfo || fusion=off
    runs 0 run p.ir --random 1 --set N=1000 --memory-budget $budget --fusion $fusion \
      --outputs budget.npz
    cmp -s plain.txt out && cmp -s plain.npz budget.npz || fail "$budget bytes gave other results"
  done
done
runs 0 view p.ir --set N=1000 --memory-budget 0 -o small.svg
refuses 2 'leave --written out' view p.ir --memory-budget 0 --written -o x.svg
refuses 2 'memory-budget' run p.ir --random 1 --set N=4 --memory-budget many
refuses 2 'expected at most 9223372036854775807 bytes' run p.ir --random 1 --set N=4 --memory-budget 18446744073709551615

# A state goes on in the program that left it.
budget='--set N=1000 --memory-budget 0'
runs 0 run p.ir --random 1 $budget --stages 1 --save-state s.state
runs 0 run p.ir --random 1 $budget --resume s.state --outputs rest.npz
sed -n '/^stage 1/,$p' plain.txt | cmp -s - out || fail 'the stages left gave other results'
refuses 1 's.state: it is a state of another program' run p.ir --random 1 --resume s.state

# What cannot be computed again has to be held.
cat >held.ir <<'EOF'
graph held {
  stage 0 (%key: i64[2], %n: f64[N]) {
    %u = uniform(%key) {shape = [N], dtype = f64}
    %v = exp(%u)
    return
  }
  stage 1 (%x: f64[N]) {
    %y = mul(%x, %u)
    %z = mul(%y, %v)
    return %z
  }
}
EOF
runs 0 disasm held.ir --set N=100 --memory-budget 832
says out '832 held, 0 returned' 'exp(R'
refuses 1 'a memory budget of 831 bytes is too small: after stage 0 at least 832 bytes' \
  disasm held.ir --set N=100 --memory-budget 831

# The budget that a message names works, also where a later stage is the one that needs it.
cat >later.ir <<'EOF'
graph later {
  stage 0 (%k0: i64[2], %n: f64[N]) {
    %u = uniform(%k0) {shape = [N], dtype = f64}
    return
  }
  stage 1 (%k1: i64[2], %x: f64[3, N]) {
    %v = uniform(%k1) {shape = [5, N], dtype = f64}
    %y = mul(%x, %u)
    return %y
  }
  stage 2 (%ct: f64[N]) {
    %z = mul(%ct, %v)
    %w = mul(%z, %u)
    return %w
  }
}
EOF
runs 1 disasm later.ir --set N=10 --memory-budget 0
least=$(sed -n 's/.* at least \([0-9]*\) bytes.*/\1/p' err)
says err 'too small: after stage 1'
runs 0 disasm later.ir --set N=10 --memory-budget "$least"
runs 1 disasm later.ir --set N=10 --memory-budget $((least - 1))
finish
