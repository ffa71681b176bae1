# gradus with ONNX models: run, grad, gradcheck, import, export, verify, print, check-onnx.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

# x: f32[N, 2] -> y = tanh(x w + b), with w = [[1, 2], [3, -1]] and b = [0.5, 0].
base64 -d >m.onnx <<'END'
CAg6egoSCgF4CgF3CgFiEgFoIgRHZW1tCgwKAWgSAXkiBFRhbmgSBXNjYWxlKhsIAggCEAEiEAAAgD8AAABAAABAQAAA
gL9CAXcqEQgCEAEiCAAAAD8AAAAAQgFiWhQKAXgSDwoNCAESCQoDEgFOCgIIAmIJCgF5EgQKAggBQgIQEQ==
END

runs 0 verify m.onnx
runs 0 print m.onnx
says out 'graph scale' '%x: f32[N, 2], %w: f32[2, 2], %b: f32[2]' 'return %y'
# SPEC W2
runs 0 run m.onnx --random 1 --set N=3 --outputs y.npz
says out 'y: f32[3, 2]'
cp out ran
runs 0 gradcheck m.onnx --order 2 --random 1 --set N=2
says out 'stage 1  w  ok' 'stage 2  b  ok'

# As a text with its weights beside it: the same bits.
runs 0 import m.onnx -o m.ir --weights w.npz
[ ! -s out ] || fail 'import -o prints nothing'
runs 0 run m.ir --weights w.npz --random 1 --set N=3
cmp -s out ran || fail 'the text and the model give different results'
runs 0 import m.onnx -o n.ir --weights w.safetensors
cmp m.ir n.ir || fail 'the format of the weights changes the program'
refuses 2 '--weights' import m.onnx -o m.ir
refuses 2 '.npz' import m.onnx -o m.ir --weights w.bin
refuses 2 'model' import m.ir -o n.ir

# Written as a model again, with its weights and without.
runs 0 export m.ir --weights w.npz -o again.onnx
[ ! -s out ] || fail 'export prints something'
runs 0 run again.onnx --random 1 --set N=3
cmp -s out ran || fail 'the exported model gives different results'
runs 0 export m.onnx -o third.onnx
cmp again.onnx third.onnx || fail 'a model and its text are exported differently'
runs 0 export m.ir -o bare.onnx
runs 0 print bare.onnx
says out '%x: f32[N, 2], %w: f32[2, 2], %b: f32[2]'
refuses 2 '.onnx' export m.ir -o m.bin
cat >gamma.ir <<'END'
graph gamma {
  stage 0 (%x: f64[3]) {
    %y = lgamma(%x)
    return %y
  }
}
END
refuses 1 'gamma.ir:3:10: error: ONNX has no operator for lgamma' export gamma.ir -o no.onnx
[ ! -e no.onnx ] || fail 'a refused export leaves a file'

# Derivatives are programs; their weights are still the model's.
runs 0 grad m.onnx --order 2 -o second.ir
runs 0 run second.ir --weights m.onnx --random 1 --set N=3
says out 'y: f32[3, 2]' 'd1_w: f32[2, 2]' 'd2_ct1_y: f32[3, 2]'
runs 0 grad m.onnx --order 1 --wrt x
grep -q d1_w out && fail '--wrt x derived d1_w'

# What is no model.
refuses 1 'nothing.onnx' run nothing.onnx
head -c 40 m.onnx >short.onnx
refuses 1 'short.onnx: ' verify short.onnx
head -c 500 /dev/urandom >noise.onnx
refuses 1 'noise.onnx: ' verify noise.onnx
: >empty.onnx
refuses 1 'empty.onnx: ' verify empty.onnx

# A backend test: the input x = [[1, 0]] gives tanh([1.5, 2]).
mkdir -p tests/test_scale/test_data_set_0
cp m.onnx tests/test_scale/model.onnx
data=tests/test_scale/test_data_set_0
printf '\x08\x01\x08\x02\x10\x01\x42\x01x\x4a\x08\x00\x00\x80\x3f\x00\x00\x00\x00' >$data/input_0.pb
printf '\x08\x01\x08\x02\x10\x01\x42\x01y\x4a\x08\x7d\xb7\x67\x3f\x9b\xca\x76\x3f' >$data/output_0.pb
runs 0 check-onnx tests --gradients 2 --exports
says out 'gradients: 7 agree, 0 are off' '1 exported' '1 passed, 0 failed, 0 unsupported'
refuses_after() { runs 1 check-onnx tests "$@"; }
refuses_after --least 2
says err 'at least 2'
printf '\x08\x01\x08\x02\x10\x01\x42\x01y\x4a\x08\x7d\xb7\x67\x3f\x9b\xca\x70\x3f' >$data/output_0.pb
refuses_after
says out 'failed  test_scale' "output 'y': element 1" '0 passed, 1 failed, 0 unsupported'
printf '\x08\x01\x08\x01\x10\x01\x42\x01y\x4a\x04\x7d\xb7\x67\x3f' >$data/output_0.pb
refuses_after
says out "output 'y' is f32[1, 2]"
rm $data/output_0.pb
refuses_after
says out 'there is no such file'
refuses 1 'no such folder' check-onnx nowhere
mkdir nothing
refuses 1 'nothing: holds no test: a folder with model.onnx' check-onnx nothing

# Fast functions are those of the standard, which says nothing of accuracy.
cat >fast.ir <<'END'
graph fast {
  stage 0 (%x: f32[4]) {
    %t = fast_tanh(%x)
    %y = fast_silu(%t)
    return %y
  }
}
END
runs 0 export fast.ir -o fast.onnx
runs 0 import fast.onnx -o fast2.ir
says fast2.ir 'tanh(' 'sigmoid('
! grep -q fast_ fast2.ir || fail 'a fast function is left in a model'

# A model is one by its content, too.
cp m.onnx model.bin
runs 0 verify model.bin
runs 0 import model.bin -o n.ir --weights n.npz
cmp m.ir n.ir || fail 'the name of a model changes its program'
refuses 2 'm.ir: is no model; what can be imported is an ONNX model (.onnx) or an archive of torch.export (.pt2)' import m.ir -o n.ir

finish
