# gradus run and disasm --fast-functions: exp, tanh, sigmoid and silu of a whole program become their
# fast forms, with the same bits in loops, kernels and whole stages.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >p.ir <<'END'
graph p {
  stage 0 (%x: f32[40, 16], %w: f32[16, 16], %h0: f32[16]) {
    %p = softmax(%x) {dim = 1}
    %e = exp(%x)
    %s = silu(%e)
    %xs = add(%p, %s)
    %u = mul(%w, 0.1)
    %h, %ys = scan(%h0, %xs, %u) {body = graph (%h: f32[16], %x: f32[16], %w: f32[16, 16]) {
      %a = mv(%w, %h)
      %b = add(%a, %x)
      %n = tanh(%b)
      %g = sigmoid(%n)
      return %n, %g
    }, carries = 1, sequences = 1}
    %l = sum(%ys)
    return %l, %h
  }
}
END
runs 0 grad p.ir --order 2 -o d.ir
input=(--random 3)
runs 0 run d.ir "${input[@]}" --outputs exact.npz
runs 0 run d.ir "${input[@]}" --fast-functions --outputs fast.npz
cmp -s exact.npz fast.npz && fail 'the fast functions have the bits of the others'
for how in first behind; do
  runs 0 run d.ir "${input[@]}" --fast-functions --fusion $how --outputs kernels.npz
  cmp -s fast.npz kernels.npz || fail "--fusion $how gives other bits"
done
python3 - <<'END' || fail 'the results are not near those of full accuracy'
import io, struct, sys, zipfile

def arrays(path):
    found = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            data = z.read(name)
            start = 10 + struct.unpack("<H", data[8:10])[0]
            found[name] = struct.unpack(f"<{(len(data) - start) // 4}f", data[start:])
    return found

exact, fast = arrays("exact.npz"), arrays("fast.npz")
assert exact.keys() == fast.keys() and len(exact) > 5
for name, values in exact.items():
    largest = max(map(abs, values))
    assert all(abs(a - b) <= 2e-5 * largest for a, b in zip(values, fast[name])), name
END

# Every one of them, in derivatives and in the loop's body.
runs 0 disasm d.ir --fast-functions
says out fast_exp fast_silu
grep -qE '[^_](exp|tanh|sigmoid|silu)\(' out && fail 'a function of full accuracy is left'

# The graph of a loop alone.
cat >loop.ir <<'END'
graph loop {
  stage 0 (%x: f32[40, 16], %h0: f32[16]) {
    %h, %ys = scan(%h0, %x) {body = graph (%h: f32[16], %x: f32[16]) {
      %a = add(%h, %x)
      %n = tanh(%a)
      %m = neg(%n)
      return %n, %m
    }, carries = 1, sequences = 1}
    return %ys
  }
}
END
runs 0 run loop.ir "${input[@]}" --outputs exact.npz
runs 0 run loop.ir "${input[@]}" --fast-functions --outputs fast.npz
cmp -s exact.npz fast.npz && fail 'the graph of a loop keeps its functions'

# In f64 nothing changes.
sed 's/f32/f64/g' p.ir >wide.ir
runs 0 run wide.ir "${input[@]}" --outputs exact.npz
runs 0 run wide.ir "${input[@]}" --fast-functions --outputs fast.npz
cmp -s exact.npz fast.npz || fail 'f64 has other bits'
finish
