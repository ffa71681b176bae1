# gradus grad, gradcheck, verify, print, disasm, ops.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >p.ir <<'END'
# A comment.
graph p {
  stage 0 (%x: f32[N], %w: f32[N]) {
    %h = mul(%x, %w)
    %t = tanh(%h)
    %y = sum(%t)
    return %y
  }
}
END
runs 0 verify p.ir
[ ! -s out ] || fail 'verify is silent about what is fine'
runs 0 print p.ir
cp out canonical.ir
runs 0 print canonical.ir
cmp -s out canonical.ir || fail 'printing is not canonical'

# Stages up to N, to standard output or to a file; those that are there stay.
runs 0 grad p.ir --order 2
cp out second.ir
says out 'stage 2' 'ct2_d1_x' 'd2_ct1_y'
runs 0 grad p.ir --order 1 -o first.ir
[ ! -s out ] || fail 'grad -o prints nothing'
runs 0 grad first.ir --order 2
cmp -s out second.ir || fail 'a second derivative in one step and in two differ'
runs 0 verify second.ir
runs 0 grad p.ir --order 1 --wrt w
says out d1_w
grep -q d1_x out && fail '--wrt w derived d1_x'
runs 0 grad p.ir --order 1 --wrt w,x
says out d1_w d1_x
runs 0 grad --wrt w --order 1 p.ir
refuses 1 "there is no input 'z'" grad p.ir --order 1 --wrt z
refuses 1 'no/such/out.ir: cannot be written' grad p.ir --order 1 -o no/such/out.ir
echo before >keep.ir
refuses 1 "there is no input 'z'" grad p.ir --order 1 --wrt z -o keep.ir
is "$(cat keep.ir)" before

# Derivatives along directions, and matrices of them: programs that can be derived again.
runs 0 jvp p.ir
says out '%t_x: f32[N]' '%t_w: f32[N]' 't_y'
runs 0 jvp p.ir --wrt w -o forward.ir
[ ! -s out ] || fail 'jvp -o prints nothing'
grep -q t_x forward.ir && fail '--wrt w has a tangent of x'
runs 0 gradcheck forward.ir --set N=3
for kind in hvp laplacian jacobian hessian; do
  runs 0 $kind p.ir -o $kind.ir
  runs 0 verify $kind.ir
  runs 0 run $kind.ir --random 1 --set N=3
  says out "${kind}_"
done
# The same for many points, which are rows of what is differentiated by.
runs 0 laplacian p.ir --wrt x --batch B -o points.ir
runs 0 print points.ir
says out '%x: f32[B, N], %w: f32[N]' 'laplacian_x = '
runs 0 gradcheck points.ir --set N=3 --set B=4
runs 0 hvp p.ir --wrt x --batch 5
says out '%t_x: f32[5, N]' 'hvp_x'
refuses 2 '--batch needs --wrt' laplacian p.ir --batch 5
runs 0 grad p.ir --order 1 --batch 4
says out '%ct1_y: f32[4]' 'd1_x'
runs 0 grad p.ir --order 1 --batch B
says out '%ct1_y: f32[B]'
refuses 1 "the program has a size 'N' already" grad p.ir --order 1 --batch N
refuses 1 "the program has a size 'N' already" laplacian p.ir --wrt x --batch N
refuses 2 '--batch: expected a whole number of 0 or more, or a name, found' grad p.ir --order 1 --batch 4x
refuses 1 'one floating result that is 0-d' hvp jacobian.ir
refuses 1 'takes a program of one stage' jvp second.ir

# Differences agree, at every order; a wrong derivative is found.
runs 0 gradcheck p.ir --order 3 --set N=3
says out 'stage 1  x  ok' 'stage 1  w  ok' 'stage 2  ct1_y  ok' 'stage 3  ct2_d1_w  ok'
runs 0 gradcheck second.ir --set N=2
is "$(grep -c '^stage 2' out)" 3
runs 0 gradcheck p.ir --set N=2 --wrt w --random 3
grep -q '  x  ' out && fail '--wrt w checked x'
runs 0 gradcheck p.ir
says out "stage 1  x  ok"
# Weights are inputs by name, after those of --inputs; sizes follow from them.
cat >weights.ir <<'END'
graph weights {
  stage 0 () {
    %w = constant() {value = f32[3] [1, 2, 3]}
    return %w
  }
}
END
runs 0 run weights.ir --outputs weights.npz
runs 0 gradcheck p.ir --weights weights.npz
says out 'stage 1  x  ok' 'stage 1  w  ok'
refuses 1 'N' gradcheck p.ir --weights weights.npz --set N=4
cat >wrong.ir <<'END'
graph wrong {
  stage 0 (%x: f32[]) {
    %y = sin(%x)
    return %y
  }
  stage 1 (%ct1_y: f32[]) {
    %c = sin(%x)
    %g = mul(%ct1_y, %c)
    return d1_x = %g
  }
}
END
runs 1 gradcheck wrong.ir
says out 'stage 1  x  WRONG' 'the derivative is' 'differences say'
says err 'error: 1 of 1 gradients failed the check'
# Outside its domain a function has no differences to compare with.
cat >outside.ir <<'END'
graph outside {
  stage 0 (%x: f64[2]) {
    %s = square(%x)
    %n = neg(%s)
    %m = sub(%n, 1)
    %y = log(%m)
    return %y
  }
}
END
runs 1 gradcheck outside.ir
says out 'stage 1  x  UNCHECKED  (the differences are not finite: give inputs inside the domain)'
says err 'WRONG or UNCHECKED'

# Every step of the pipeline can be seen; others are listed.
runs 0 print second.ir --dump-after eliminate_dead_code
says out 'graph p' 'stage 2'
refuses 2 'the steps are expand_grad, decompose' print p.ir --dump-after nonsense
runs 0 disasm second.ir
says out 'stage 2' 'tanh' 'R0'
refuses 1 "no dimension 'Q'" disasm second.ir --set Q=3

# What a device would leave to the host; it need not be there.
cat >there.ir <<'END'
graph there {
  stage 0 (%x: f32[N]@cuda:0) {
    %a = neg(%x)
    %b = logcumsumexp(%a) {dim = 0}
    %y = exp(%b)
    return %y
  }
}
END
runs 0 disasm there.ir
says out 'host: say sizes with --set'
runs 0 disasm there.ir --set N=8
says out 'stage 0: a buffer of' 'host: 1 instruction between copies' 'stage 0, instruction 1: logcumsumexp @4:'
runs 0 disasm second.ir --device cuda:1 --set N=8
says out 'host: 0 instructions between copies'
runs 0 disasm second.ir --set N=8
! grep -q 'host:' out || fail 'there is a host without a device'
refuses 2 'gradus disasm: --device gpu is no device' disasm there.ir --device gpu
refuses 1 'must lie on cuda:0' disasm there.ir --device cuda:1 --set N=8

runs 0 ops
says out 'add(x, y; alpha = 1)' 'softplus(x; beta = 1.0, threshold = 20.0)'
runs 0 ops --markdown
says out '| `add(x, y; alpha = 1)' '| --- |'
is "$(grep -vc '^| .* |$' out)" 0
runs 0 ops --json
! command -v jq >/dev/null || is "$(jq -r '.[] | select(.name == "add") | .differentiable' out)" true
finish
