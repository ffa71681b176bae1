# What scripts/portable made can be carried away: check.sh ARCHIVE. Exits with 77 where there is none.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
archive=$1
[ -f "$archive" ] || { echo "there is no $archive: scripts/portable makes it"; exit 77; }
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
tar -C "$away" -xf "$archive"
cd "$away/gradus-portable"

bytes=$(stat -c %s gradus-portable)
echo "the program has $bytes bytes"
[ "$bytes" -lt $((60 << 20)) ] || fail 'it is to be smaller than 60 MiB'
needed=$(readelf -d gradus-portable | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
echo "it needs" $needed
others=$(grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so\.[0-9]+$' <<<"$needed" || true)
[ -z "$others" ] || fail "these are not glibc's: $others"
! readelf -SW gradus-portable | grep -qE '\.(symtab|debug_)' || fail 'it is not stripped'

# In an empty environment and another folder; where a mount may be made, the tree is hidden.
hidden=(env -i)
if unshare -rm true 2>/dev/null; then
  hidden=(unshare -rm sh -c 'mount -t tmpfs none "$0" && exec env -i "$@"' "$tree")
  echo 'the tree is hidden'
fi
mkdir "$away/elsewhere"
cd "$away/elsewhere"
run() { "${hidden[@]}" "$away/gradus-portable/gradus-portable" "$@"; }

run --version | grep -q 'without LLVM, oneDNN, OpenBLAS, ONNX' || fail 'its version'
run test --gtest_brief=1 --gtest_filter='expected.*:node_by_node.*:NpzFiles.*' >log 2>&1 ||
  { cat log; fail 'its tests'; }
grep PASSED log
[ "$(sed -n 's/.*PASSED.* \([0-9]*\) tests.*/\1/p' log)" -gt 200 ] || fail 'too few tests'

# Products are by the loops of Gradus, and no kernel for the CPU is promised.
cat >product.ir <<'P'
graph product {
  stage 0 (%a: f64[M, K], %b: f64[K, N]) {
    %y = matmul(%a, %b)
    return %y
  }
}
P
run run product.ir --random 1 --set M=200 --set K=300 --set N=100 | grep -q 'f64\[200, 100\]' ||
  fail 'a product'
refused() {  # WHAT IS SAID, COMMAND...
  local said=$1
  shift
  if run "$@" >log 2>&1; then fail "$* was not refused"; fi
  grep -qF "$said" log || { cat log; fail "$* is not refused by: $said"; }
}
refused 'this build has no LLVM (it was configured with GRADUS_LLVM=OFF)' \
  run product.ir --random 1 --set M=2 --set K=2 --set N=2 --fusion first
: >model.onnx
refused 'mine.so: cannot be loaded: the portable program has Gradus inside of itself' \
  ops --plugin mine.so
refused 'this build has no ONNX (it was configured with GRADUS_ONNX=OFF)' import model.onnx

# What there is of CUDA is said; without a device gpu-check ends where it is opened, with nothing
# written.
run devices >log
cat log
for what in "NVIDIA's driver" NVRTC cuBLASLt cuDNN; do
  grep -qF "$what" log || fail "devices says nothing of $what"
done
if grep -q '^no CUDA device' log; then
  if bash "$away/gradus-portable/gpu-check" >log 2>&1; then fail 'gpu-check found a device'; fi
  grep -q 'error: the device does not open: error: ' log || { cat log; fail 'gpu-check'; }
  [ ! -e "$away/gradus-portable/bench/results" ] || fail 'gpu-check wrote something'
fi
echo 'fine'
