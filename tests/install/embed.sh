# An install tree is enough: the example in examples/embed is built against one, with CMake and with
# pkg-config, and brings its operator to the installed tool.
# SPEC W6
# SPEC W7
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
example=$GRADUS_SOURCE_DIR/examples/embed

cmake -S "$example" -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS="${CXXFLAGS-}" >configure.log
cmake --build build >build.log || { cat build.log >&2; fail 'the example does not build'; }
./build/embed >out 2>err || { cat out err >&2; fail 'the example failed'; }
grep -q '^an error, caught here: ' out || fail 'the error did not get across'
[ "$(grep -c '^y = ' out)" = 4 ] || fail 'four results were expected'
[ ! -s err ] || { cat err >&2; fail 'something was printed'; }

# sum(tanh(x / 2)) at -1, 0.5 and 2, and its derivatives (1 - tanh(x / 2)^2) / 2.
./build/slopes >out 2>err || { cat out err >&2; fail 'the example in C failed'; }
awk 'function near(a, b) { return (a - b)^2 < 1e-24 }
  $1 == "y" { y = near($3, 0.544395661099) }
  $1 == "dy/dx" { d = near($3, 0.393223866483) && near($4, 0.470007424403) && near($5, 0.209987170807) }
  END { exit !(y && d) }' out || { cat out >&2; fail 'the example in C is wrong'; }

# pkg-config finds the same library.
pc=$(find "$prefix" -name gradus.pc)
export PKG_CONFIG_PATH=${pc%/*}
[ "$(pkg-config --modversion gradus)" = "$("$prefix/bin/gradus" --version | cut -d' ' -f2)" ] ||
  fail 'pkg-config says another version'
cat >small.cpp <<'END'
#include <cstdio>
#include "gradus/state.h"
#include "gradus/text.h"
int main() {
  using namespace gradus;
  auto code = Code::compile(
      ir::parse("graph g { stage 0 (%x: f64[]) { %y = exp(%x) return %y } }").program());
  State state(code);
  std::printf("%g\n", state.run(std::array{Tensor::scalar(DType::f64, 0)})[0].item());
}
END
# shellcheck disable=SC2046
c++ ${CXXFLAGS-} small.cpp -o small $(pkg-config --cflags --libs gradus)
lib=${pc%/pkgconfig/*}
[ "$(LD_LIBRARY_PATH=$lib ./small)" = 1 ] || fail 'the program built by pkg-config is wrong'

# The tool, with the plug-in's operator and without.
tool=$prefix/bin/gradus
"$tool" gradcheck "$example/windows.ir" --plugin build/libwindows.so --order 2 --random 1 --set N=6 \
  >out || fail 'the plug-in operator has wrong derivatives'
"$tool" run "$example/windows.ir" --plugin build/libwindows.so --fusion first --random 1 --set N=6 \
  >out || fail 'the plug-in operator does not run beside kernels'
grep -q 'y: f64\[4\]' out || fail 'the shape rule was not asked'
"$tool" ops --plugin build/libwindows.so | grep -q 'window_sums(x; width' || fail 'it is not listed'
if "$tool" run "$example/windows.ir" --random 1 --set N=6 2>err; then fail 'no plug-in was given'; fi
grep -q "no operator" err || { cat err >&2; fail 'the operator should not be known'; }
refuses() {
  if "$tool" ops --plugin "$1" >out 2>err; then fail "$1 was loaded"; fi
  grep -q "$2" err || { cat err >&2; fail "expected: $2"; }
}
refuses nowhere.so 'nowhere.so: cannot be read'
refuses "$example/windows.ir" 'cannot be loaded'
refuses "$(find "$lib" -name 'libgradus.so*' -type f | head -1)" 'is no plug-in'

# Nothing of ours prints or exits, but for what programs are made of.
loud=$(find "$BUILD" -maxdepth 3 -name 'libgradus_*.a' ! -name 'libgradus_functions.a' \
  ! -name 'libgradus_test*' ! -name 'libgradus_device_bench.a' -exec nm -A -C --undefined-only {} + |
  grep -E ' (_?exit|_Exit|quick_exit|abort|v?printf|puts|putchar|perror|stdout|stderr|std::(cout|cerr|clog))$' |
  head -3) || true
[ -z "$loud" ] || fail "the library prints or exits: $loud"

# Only names of ours are seen.
shown=$(nm -D --defined-only -C "$lib"/libgradus.so | awk '$2 != "A" {$1 = $2 = ""; print}' |
  grep -vE 'gradus(::|_)' | head -3)
[ -z "$shown" ] || fail "other names are exported: $shown"
