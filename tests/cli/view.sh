# gradus view: what is drawn, from what, and what is refused. The page itself: tests/view.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >swing.ir <<'EOF'
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = softmax(%h) {dim = 0}
    %t = square(%s)
    %u = sub(%t, %x)
    %v = mul(%u, %w)
    %y = sum(%v)
    return %y
  }
}
EOF
runs 0 grad swing.ir --order 1 -o swing1.ir

runs 0 view swing1.ir -o swing.svg
[ ! -s out ] || fail 'view prints nothing'
says swing.svg '<svg xmlns=' 'stage 0' 'held after stage 0' '8*N B' 'for N = 256' 'class="frame"' \
  'swing1.ir:5:10'
! command -v xmllint >/dev/null || xmllint --noout swing.svg || fail 'swing.svg is no XML'
runs 0 view swing1.ir
cmp -s out swing.svg || fail 'without -o the drawing goes to standard output'
runs 0 view swing1.ir -o swing.html
says swing.html '<!DOCTYPE html>' 'Content-Security-Policy' "default-src 'none'"
! grep -qE '(src|href)="?http|@import|url\(' swing.html || fail 'the page fetches something'

# As it is written a softmax is one box, and there are no kernels.
runs 0 view swing.ir --written -o written.svg
says written.svg '>softmax<'
! grep -q 'class="frame"' written.svg || fail '--written has kernels'
runs 0 view swing.ir -o runs.svg
! grep -q '>softmax<' runs.svg || fail 'what runs has a softmax'

# Modules of a model are boxes that unfold, whose weights are drawn within them.
resnet=$GRADUS_SOURCE_DIR/tests/pt2/data/resnet_eval.pt2
runs 0 view "$resnet" --modules -o modules.html
says modules.html '>layer1<' 'graph layer1.0' 'run by layer1.0' 'module' 'class="item instruction opens"'
[ "$(grep -c 'class="item input".*>%layer1.0.conv1.weight<' modules.html)" -le 1 ] ||
  fail 'a weight is drawn in each graph around the module that reads it'
refuses 2 'names no modules' view swing.ir --modules
refuses 2 'leave --modules out' view "$resnet" --modules --profile plain.json

# A kernel that reads a view of what it makes.
cat >rows.ir <<'EOF'
graph rows {
  stage 0 (%x: f64[4], %c: f64[4, 4], %d: f64[4]) {
    %t0 = select(%c) {dim = 0, index = 3}
    %t1 = select(%c) {dim = 0, index = 1}
    %t2 = sum(%d) {dim = [0], keepdim = true}
    %t3 = mul(%t2, %t0)
    %t4 = add(1.0, %t3)
    %t5 = mul(%d, %t0)
    %t6 = neg(%t5)
    %t7 = sum(%t6) {dim = [0], keepdim = true}
    %t8 = mul(%t7, 1.0)
    %t9 = add(%t4, %t8)
    %t10 = mul(%d, 1.0)
    %t11 = add(%t9, %t10)
    %t12 = neg(%t1)
    %t13 = sum(%t12) {dim = [0], keepdim = true}
    %t14 = mul(%t13, 1.0)
    %t15 = add(%t11, %t14)
    %t16 = neg(%d)
    %t17 = sum(%t16) {dim = [0], keepdim = true}
    %t18 = expand(%t17) {shape = [4]}
    %t19 = mul(%t18, 1.0)
    %t20 = add(%t15, %t19)
    %t21 = sum(%x) {dim = [0], keepdim = true}
    %t22 = sub(%t20, %t21)
    %y = mul(%x, %t22)
    return %y
  }
}
EOF
runs 0 view rows.ir -o rows.svg

# Sizes decide what pays.
runs 0 view swing1.ir --set N=1 -o one.svg
says one.svg 'for N = 1'
refuses 1 "no dimension 'M'" view swing1.ir --set M=1 -o one.svg

# Kernels of a device, which need not be there.
cat >there.ir <<'EOF'
graph there {
  stage 0 (%x: f32[N]@cuda:0) {
    %a = neg(%x)
    %b = logcumsumexp(%a) {dim = 0}
    %y = exp(%b)
    return %y
  }
}
EOF
runs 0 view there.ir -o there.svg
says there.svg 'kernels as planned on cuda:0 for N = 256' '1 instruction on the host'
runs 0 view swing1.ir --device cuda:0 -o swing_there.svg
says swing_there.svg 'kernels as planned on cuda:0 for N = 256' 'class="frame"'
refuses 2 'gradus view: --device gpu is no device' view there.ir --device gpu

# Times of a profile, and the kernels that ran.
runs 0 run swing1.ir --random 1 --set N=64 --profile plain.json
runs 0 view swing1.ir --profile plain.json -o timed.svg
says timed.svg 'times of plain.json' 'class="time"' ' us<'
runs 0 run swing1.ir --random 1 --set N=64 --fusion first --profile fused.json
runs 0 view swing1.ir --profile fused.json -o fused.svg
says fused.svg 'times and kernels of fused.json' 'class="frame"'
refuses 1 'another program' view swing.ir --profile plain.json -o x.svg
echo '{"traceEvents": [{"name": 3}]}' >bad.json
refuses 1 'no profile' view swing.ir --profile bad.json -o x.svg
echo 'not JSON' >bad.json
refuses 1 'no profile' view swing.ir --profile bad.json -o x.svg
refuses 1 'missing.json' view swing.ir --profile missing.json -o x.svg
refuses 2 'leave' view swing.ir --written --profile plain.json -o x.svg
refuses 2 '.svg or an .html' view swing.ir -o x.png
refuses 1 'no/such/x.svg' view swing.ir -o no/such/x.svg
[ ! -e x.svg ] || fail 'a refused drawing was written'
finish
