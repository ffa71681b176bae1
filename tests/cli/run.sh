# gradus run: inputs, sizes, results.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >p.ir <<'END'
graph p {
  stage 0 (%x: f64[N, 3], %w: f64[3]) {
    %h = mul(%x, %w)
    %y = sum(%h)
    return %h, %y
  }
  stage 1 (%ct1_h: f64[N, 3], %ct1_y: f64[]) {
    %e = expand(%ct1_y) {shape = [N, 3]}
    %g = add(%ct1_h, %e)
    %dx = mul(%g, %w)
    %dh = mul(%g, %x)
    %dw = sum(%dh) {dim = [0]}
    return d1_x = %dx, d1_w = %dw
  }
}
END
cat >data.ir <<'END'
graph data {
  stage 0 () {
    %x = constant() {value = f64[2, 3] [[1, 2, 3], [4, 5, 6]]}
    %w = constant() {value = f64[3] [1, 10, 100]}
    %ct1_h = constant() {value = f64[2, 3] [[0, 0, 0], [0, 0, 0]]}
    %ct1_y = constant() {value = f64[] 1}
    %other = constant() {value = i64[2] [7, 8]}
    return %x, %w, %ct1_h, %ct1_y, %other
  }
}
END
runs 0 run data.ir --outputs data.npz
says out 'stage 0' 'x: f64[2, 3]  [[1, 2, 3], [4, 5, 6]]' 'ct1_y: f64[]  1' 'other: i64[2]  [7, 8]'

# What was written is read again; names that no input has do not matter.
runs 0 run p.ir --inputs data.npz --outputs results.npz
says out 'h: f64[2, 3]  [[1, 20, 300], [4, 50, 600]]' 'y: f64[]  975' 'stage 1' \
  'd1_x: f64[2, 3]  [[1, 10, 100], [1, 10, 100]]' 'd1_w: f64[3]  [5, 7, 9]'
command -v unzip >/dev/null && is "$(unzip -Z1 results.npz | tr '\n' ' ')" 'h.npy y.npy d1_x.npy d1_w.npy '
is "$(ls -A | grep -c '^\.')" 0  # no temporary file is left

# The first stages only: later inputs are not asked for.
runs 0 run p.ir --inputs data.npz --stages 1
is "$(grep -c '^stage' out)" 1
refuses 1 '--stages 3: the program has 2 stages' run p.ir --inputs data.npz --stages 3
refuses 2 '--stages' run p.ir --stages 0
refuses 2 '--stages' run p.ir --stages 99999999999999999999999

# Missing inputs are listed; random ones want sizes.
refuses 1 'stage 0 lacks 2 inputs: x: f64[N, 3], w: f64[3]' run p.ir
refuses 1 'dimension '"'N'"' of input '"'x'"' (f64[N, 3]) is not known; set it (--set N=SIZE)' run p.ir --random 1
runs 0 run p.ir --random 1 --set N=4 --outputs a.npz
says out 'h: f64[4, 3]  min'
runs 0 run p.ir --random 1 --set N=4 --outputs b.npz
cmp -s a.npz b.npz || fail 'the same seed gave other numbers'
runs 0 run p.ir --random 2 --set N=4 --outputs b.npz
cmp -s a.npz b.npz && fail 'another seed gave the same numbers'
runs 0 run p.ir --random 1 --set N=4 --threads 3 --outputs b.npz
cmp -s a.npz b.npz || fail 'more threads gave other bits'
# Sizes follow from what is given.
runs 0 run p.ir --inputs data.npz --random 1
refuses 1 "dimension 'N' is set to 5, but the inputs make it 2" run p.ir --inputs data.npz --random 1 --set N=5
refuses 1 "the program has no dimension 'M'; it has N" run p.ir --random 1 --set M=5
refuses 2 'expected DIM=SIZE' run p.ir --random 1 --set N
refuses 2 'expected DIM=SIZE' run p.ir --random 1 --set N=-1
refuses 2 'expected DIM=SIZE' run p.ir --random 1 --set N=2x
refuses 2 'expected DIM=SIZE' run p.ir --random 1 --set N=99999999999999999999
refuses 2 'set twice' run p.ir --random 1 --set N=2 --set N=3
runs 0 run p.ir --random 1 --set N=0
says out 'h: f64[0, 3]  no elements' 'y: f64[]  0'

# Weights come after inputs; a later file of inputs comes before an earlier one.
cat >more.ir <<'END'
graph more {
  stage 0 () {
    %w = constant() {value = f64[3] [2, 2, 2]}
    return %w
  }
}
END
runs 0 run more.ir --outputs more.npz
runs 0 run p.ir --inputs data.npz --weights more.npz --stages 1
says out 'y: f64[]  975'
runs 0 run p.ir --inputs data.npz --inputs more.npz --stages 1
says out 'y: f64[]  42'
runs 0 run p.ir --inputs more.npz --inputs data.npz --stages 1
says out 'y: f64[]  975'
# Several behind one option, before and behind the program.
runs 0 run p.ir --inputs data.npz more.npz --stages 1
says out 'y: f64[]  42'
runs 0 run --inputs more.npz data.npz p.ir --stages 1
says out 'y: f64[]  975'
refuses 2 'more.npz: it belongs to no option' run p.ir more.npz --inputs data.npz
refuses 2 'other.ir: it belongs to no option' run p.ir --inputs data.npz other.ir
refuses 2 "'N' is set twice" run p.ir --random 1 --set N=3 N=3

# The same in the other format.
runs 0 run more.ir --outputs more.safetensors
runs 0 run data.ir --outputs data.safetensors
runs 0 run p.ir --inputs data.safetensors --weights more.safetensors --stages 1 --outputs a.safetensors
says out 'y: f64[]  975'
runs 0 run p.ir --inputs more.safetensors --inputs data.npz --stages 1 --outputs b.safetensors
cmp -s a.safetensors b.safetensors || fail 'two formats gave other bits'
printf 'not one' >bad.safetensors
refuses 1 'bad.safetensors: it is no .safetensors file' run p.ir --weights bad.safetensors

# Shapes and dtypes: values are converted only if none changes.
cat >f.ir <<'END'
graph f {
  stage 0 (%a: f32[2], %b: f64[2], %c: f32[]) {
    return %a, %b, %c
  }
}
END
cat >good.ir <<'END'
graph good {
  stage 0 () {
    %a = constant() {value = f64[2] [0.5, -2]}
    %b = constant() {value = i64[2] [3, -4]}
    %c = constant() {value = f32[] 0.1}
    return %a, %b, %c
  }
}
END
runs 0 run good.ir --outputs good.npz
runs 0 run f.ir --inputs good.npz
says out 'a: f32[2]  [0.5, -2]' 'b: f64[2]  [3, -4]' 'c: f32[]  0.1'
sed 's/-2\]/0.1]/' good.ir >bad.ir
runs 0 run bad.ir --outputs bad.npz
refuses 1 "input 'a' of stage 0 in bad.npz is f64, the program says f32" run f.ir --inputs bad.npz
sed 's/i64\[2\] \[3, -4\]/f64[3] [1, 2, 3]/' good.ir >bad.ir
runs 0 run bad.ir --outputs bad.npz
refuses 1 "'b'" run f.ir --inputs bad.npz
finish
