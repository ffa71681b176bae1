# gradus run --profile: the trace, and the tables that are printed. Bars on a terminal.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >slow.ir <<'EOF'
graph slow {
  stage 0 (%x: f64[N], %w: f64[N, N]) {
    %a = matmul(%w, %w)
    %b = matmul(%a, %w)
    %h = mul(%x, %x)
    %s = sub(%h, %x)
    %c = sum(%b)
    %d = sum(%s)
    %y = add(%c, %d)
    return %y
  }
}
EOF
runs 0 run slow.ir --random 1 --set N=500 --profile trace.json
says out 'profile by operator' 'profile by line of slow.ir' '%a = matmul(%w, %w)'
# The slowest first; calls of an operator are counted together, lines for themselves.
row() { sed -n "/$1/,\$p" out | sed -n "$2p"; }
case $(row 'by operator' 3) in
  *' 2  matmul') ;;
  *) fail 'the products are not the slowest operator' ;;
esac
row 'by line' 3 | grep -qE ' 1  [34]  %[ab] = matmul' || fail 'a product is not the slowest line'

# Shares are of the whole, and the times those of the trace.
share=$(sed -n '/by operator/,/by line/p' out |
  awk '$2 ~ /%$/ { sum += $2 } END { print (sum > 99 && sum < 101) }')
is "$share" 1
traced=$(grep -o '"dur": [0-9.e-]*' trace.json | awk '{ sum += $2 } END { print sum }')
printed=$(sed -n '/by line/,$p' out | awk '$2 ~ /%$/ { sum += $1 } END { print sum }')
awk -v a="$traced" -v b="$printed" 'BEGIN { exit !(a - b < 0.01 * a && b - a < 0.01 * a) }' ||
  fail "the trace has $traced us, the table $printed"

# Without --profile there is no table.
runs 0 run slow.ir --random 1 --set N=3
! grep -q profile out || fail 'a table that nobody asked for'

# A kernel is one row, with what it computes and its lines.
runs 0 run slow.ir --random 1 --set N=2000 --stages 1 --fusion first --profile fused.json
says out 'kernel of mul, sub, sum' '5, 6, 8'
says fused.json '"group": [' '"operator": "sum"'
! grep -qE ' sub$' out || fail 'sub ran in the kernel, not by itself'

# What Perfetto reads: complete events with times, a process and a thread.
if command -v python3 >/dev/null; then
  python3 - trace.json fused.json <<'EOF' || fail 'a trace is not what Perfetto reads'
import json, sys
for path in sys.argv[1:]:
    trace = json.load(open(path))
    assert len(trace["traceEvents"]) == 7
    end = 0
    for e in trace["traceEvents"]:
        assert e["ph"] == "X" and isinstance(e["name"], str)
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert e["dur"] >= 0 and e["ts"] >= end, e  # one after the other
        end = e["ts"] + e["dur"] - 0.01
        assert e["args"]["place"].startswith("slow.ir:")
EOF
fi

# The steps of a loop have a table of their own, and stand within their loop in the trace.
cat >loop.ir <<'EOF'
graph cell {
  stage 0 (%h: f64[N], %x: f64[N]) {
    %s = add(%h, %x)
    %n = tanh(%s)
    return %n
  }
}
graph loop {
  stage 0 (%h0: f64[N], %xs: f64[T, N]) {
    %h = scan(%h0, %xs) {body = "cell", carries = 1, sequences = 1}
    %y = sum(%h)
    return %y
  }
}
EOF
runs 0 run loop.ir --random 1 --set N=4 --set T=30 --repeat 2 --profile loop.json
says out 'profile of the steps of loops, by graph and line' '%h = scan(%h0, %xs)'
row 'profile of the steps' 3 | grep -qE ' 30  cell [34]  %[sn] = ' || fail 'no row of 30 steps'
if command -v python3 >/dev/null; then
  python3 - loop.json <<'EOF' || fail 'the trace of a loop is wrong'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
steps = [e for e in events if "graph" in e["args"]]
loop = next(e for e in events if e["name"] == "scan")
assert len(events) == 2 + 2 * 30 and len(steps) == 2 * 30
assert [e["args"]["step"] for e in steps if e["name"] == "tanh"] == list(range(30))
for e in steps:
    assert e["args"]["graph"] == "cell" and e["args"]["place"].startswith("loop.ir:")
    assert loop["ts"] <= e["ts"] and e["ts"] + e["dur"] <= loop["ts"] + loop["dur"] + 0.01
EOF
fi
# A picture has the loop's time once.
runs 0 view loop.ir --profile loop.json -o loop.svg

# The lines of a model are its nodes.
base64 -d >m.onnx <<'END_MODEL'
CAg6egoSCgF4CgF3CgFiEgFoIgRHZW1tCgwKAWgSAXkiBFRhbmgSBXNjYWxlKhsIAggCEAEiEAAAgD8AAABAAABAQAAA
gL9CAXcqEQgCEAEiCAAAAD8AAAAAQgFiWhQKAXgSDwoNCAESCQoDEgFOCgIIAmIJCgF5EgQKAggBQgIQEQ==
END_MODEL
runs 0 run m.onnx --random 1 --set N=3 --profile m.json
says out 'profile by line of m.onnx' 'h = Gemm' 'y = Tanh'

# Long work shows a bar on a terminal. (In a pipe there is none: `runs` holds that everywhere.)
if command -v script >/dev/null; then
  for work in 'run slow.ir --random 1 --set N=400 --repeat 30' \
              'gradcheck slow.ir --order 2 --random 1 --set N=8'; do
    script -qec "$GRADUS $work" /dev/null >terminal </dev/null
    grep -qE '\[#* *\] +[0-9]+ %  (rounds|stage)' terminal ||
      fail "gradus $work: no bar on a terminal"
  done
fi
runs 0 run slow.ir --random 1 --set N=400 --repeat 30
finish
