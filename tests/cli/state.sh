# gradus run: a state saved after any stage is resumed by another process.
# SPEC I20
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >swing.ir <<'END'
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y
  }
}
END
runs 0 grad swing.ir --order 2 -o p.ir
runs 0 run p.ir --random 1 --set N=300 --outputs whole.npz
sed -n '/^stage 1/,$p' out >rest
for n in 1 2 3; do
  # What ran before the save, and what comes after it.
  runs 0 run p.ir --random 1 --set N=300 --stages $n --save-state $n.state
  [ $n = 3 ] || runs 0 run p.ir --random 1 --resume $n.state --outputs $n.npz
  [ $n != 1 ] || cmp -s rest out || fail 'the stages left gave other results'
done
refuses 1 'stage 3 is next, and the program has 3 stages' run p.ir --random 1 --resume 3.state
refuses 1 'stage 1 is next, and --stages 1 ends before it' run p.ir --random 1 --resume 1.state --stages 1
# From one to the next, with kernels.
runs 0 run p.ir --random 1 --resume 1.state --stages 2 --save-state again.state --fusion first
cmp -s 2.state again.state || fail 'the state after stage 1 is another one'
runs 0 run p.ir --random 1 --resume again.state --fusion first --outputs again.npz
cmp -s 2.npz again.npz || fail 'the last stage gave other results'

sed 's/tanh/sin/' p.ir >other.ir
refuses 1 "1.state: it is a state of another program ('swing'" run other.ir --random 1 --resume 1.state
refuses 1 'nowhere.state: cannot be read' run p.ir --random 1 --resume nowhere.state
refuses 1 'a saved state is a file that State::save or gradus run --save-state wrote' run p.ir --random 1 --resume swing.ir
refuses 1 'no/such/s.state: cannot be written' run p.ir --random 1 --set N=3 --save-state no/such/s.state

# A live handle: of a function that may be called again, and of one that may not.
example=$GRADUS_SOURCE_DIR/examples/double_backward.ir
runs 0 run "$example" --random 1 --set N=3 --outputs whole.npz
sed -n '/^stage 1/,$p' out >rest
runs 0 run "$example" --random 1 --set N=3 --stages 1 --save-state f.state
runs 0 run "$example" --random 1 --resume f.state
cmp -s rest out || fail 'the stages behind a function gave other results'
sed 's/swish/square_opaque/' "$example" >square.ir
refuses 1 "of 'square_opaque', which cannot be saved: the function is not registered as replayable" \
  run square.ir --random 1 --set N=3 --stages 1 --save-state g.state
[ ! -e g.state ] || fail 'g.state was written'
finish
