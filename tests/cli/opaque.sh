# The tool's opaque functions, and programs that name them.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

# The example, by values that were worked out otherwise: swish(-1) and swish'(-1).
example=$GRADUS_SOURCE_DIR/examples/double_backward.ir
cat >data.ir <<'EOF'
graph data {
  stage 0 () {
    %x = constant() {value = f64[1] [-0.5]}
    %w = constant() {value = f64[1] [2]}
    %ct1_y = constant() {value = f64[] 1}
    %ct2_d1_x = constant() {value = f64[1] [0]}
    %ct2_d1_w = constant() {value = f64[1] [1]}
    return %x, %w, %ct1_y, %ct2_d1_x, %ct2_d1_w
  }
}
EOF
runs 0 run data.ir --outputs data.npz
runs 0 run "$example" --inputs data.npz
says out 'stage 2' 'y: f64[]  -0.2689414' 'd1_x: f64[1]  [0.1446589' 'd1_w: f64[1]  [-0.036164'
runs 0 run "$example" --random 1 --set N=3 --outputs a.npz
says out 'd2_ct1_y: f64[]  '
runs 0 run "$example" --random 1 --set N=3 --threads 4 --outputs b.npz
cmp -s a.npz b.npz || fail 'more threads gave other bits'
# Stages written by hand are right, and a third is derived from them.
runs 0 gradcheck "$example" --order 3
says out 'stage 2  ct1_y  ok' 'stage 3  x  ok' 'stage 3  ct2_d1_w  ok'
runs 0 grad "$example" --order 3
says out 'name = "swish"' 'stage 3' d3_ct2_d1_x
runs 0 disasm "$example"
says out cpp_op eval
sed s/swish/swsh/ "$example" >misspelt.ir
refuses 1 "no C++ function named 'swsh' is registered; did you mean 'swish'?" verify misspelt.ir

# program FUNCTION TYPE: y = sum(FUNCTION(x^2)) of a vector.
program() {
  cat <<EOF
graph p {
  stage 0 (%x: $2) {
    %h = mul(%x, %x)
    %s = cpp_op(%h) {name = "$1"}
    %y = sum(%s)
    return %y
  }
}
EOF
}

program swish 'f32[N]' >swish.ir
runs 0 gradcheck swish.ir --order 3
says out 'stage 3  ct2_d1_x  ok'
runs 0 run swish.ir --random 1 --set N=3
says out 'y: f32[]  '

# A function has as many derivatives as it says, and no more.
# SPEC D3
program square_opaque 'f64[N]' >square.ir
runs 0 gradcheck square.ir --order 2
says out 'stage 2  x  ok' 'stage 2  ct1_y  ok'
refuses 1 'square_opaque' gradcheck square.ir --order 3
says err 'square.ir:4:' '2'
refuses 1 'square_opaque' grad square.ir --order 3
runs 0 grad square.ir --order 2 -o square2.ir
runs 0 run square2.ir --random 1 --set N=2

cat >two.ir <<'EOF'
graph two {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a, %b = cpp_op(%x, %w) {name = "two_out"}
    %c = mul(%a, %b)
    %y = sum(%c)
    return %y, %b
  }
}
EOF
runs 0 gradcheck two.ir --order 3
says out 'stage 3  x  ok' 'stage 3  ct1_b  ok'
refuses 1 'two_out' gradcheck two.ir --order 4

# What they take is said; so is what there is.
program swish 'i64[N]' >integers.ir
refuses 1 'f64 or f32' verify integers.ir
says err 'integers.ir:4:' swish 'i64[N]'
program two_out 'f64[N]' >one.ir
refuses 1 'it takes 2 operands of one type, f64 or f32' verify one.ir
sed 's/%w: f64/%w: f32/' two.ir >mixed.ir
refuses 1 'f64[N], f32[N]' verify mixed.ir
program swsh 'f64[N]' >typo.ir
refuses 1 swsh verify typo.ir
runs 0 ops
says out 'functions for cpp_op' 'square_opaque  2' 'swish  any' 'two_out  3'
finish
