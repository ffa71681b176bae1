# gradus run: nothing is left half-written, and what cannot be written is said first.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

cat >index.ir <<'END'
graph index {
  stage 0 (%i: i64[2]) {
    %c = constant() {value = f64[3] [1, 2, 3]}
    %y = index_select(%c, %i) {dim = 0}
    return %y
  }
}
END
cat >bad.ir <<'END'
graph bad {
  stage 0 () {
    %i = constant() {value = i64[2] [0, 3]}
    return %i
  }
}
END
runs 0 run bad.ir --outputs bad.npz
echo before >out.npz
echo before >trace.json
runs 1 run index.ir --inputs bad.npz --outputs out.npz --profile trace.json
says err 'index.ir:4:' 'error: index_select'
is "$(cat out.npz)" before
is "$(cat trace.json)" before
is "$(ls -A | grep -c '^\.')" 0

refuses 1 'no/such/out.npz: cannot be written' run index.ir --inputs bad.npz --outputs no/such/out.npz
mkdir folder
refuses 1 'folder: cannot be written' run index.ir --random 0 --outputs folder
refuses 1 'folder: cannot be written' run index.ir --random 0 --profile folder
runs 0 run index.ir --random 0 --outputs out.npz

# Results of two stages under one name cannot go to one file.
cat >twice.ir <<'END'
graph twice {
  stage 0 (%x: f64[]) {
    %y = neg(%x)
    return %y
  }
  stage 1 () {
    %z = neg(%y)
    return y = %z
  }
}
END
runs 0 run twice.ir --random 1
refuses 1 "stages 0 and 1 both return 'y'" run twice.ir --random 1 --outputs two.npz
[ ! -e two.npz ] || fail 'two.npz was written'

# Structural zeros are said and not written.
cat >zero.ir <<'END'
graph zero {
  stage 0 (%x: f64[], %u: f64[]) {
    %y = neg(%x)
    return %y
  }
}
END
runs 0 grad zero.ir --order 1 -o zero1.ir
runs 0 run zero1.ir --random 1 --outputs zero.npz
says out 'd1_u: none'
command -v unzip >/dev/null && is "$(unzip -Z1 zero.npz | tr '\n' ' ')" 'y.npy d1_x.npy '

# A full disk is no fault of Gradus.
if [ -w /dev/full ]; then
  status=0
  "$GRADUS" print zero.ir >/dev/full 2>err || status=$?
  ran='gradus print >/dev/full'
  is "$status" 1
  says err 'standard output cannot be written'
fi

# Times and profiles.
runs 0 run zero1.ir --random 1 --repeat 5 --profile trace.json
says out 'stage 0: median' 'stage 1: median' 'of 5 runs'
says trace.json '"traceEvents"' '"name": "neg"' '"ph": "X"' '"stage": 0' 'zero1.ir:' '%y = neg(%x)'
! command -v jq >/dev/null || is "$(jq '.traceEvents | length' trace.json)" 2
finish
