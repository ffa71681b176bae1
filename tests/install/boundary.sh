# What is installed is the public boundary: its headers include nothing else of Gradus, and the shared
# library shows no symbol of what is internal.
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
include=$prefix/include
pc=$(find "$prefix" -name gradus.pc)
export PKG_CONFIG_PATH=${pc%/*}
lib=${pc%/pkgconfig/*}

# They are the tree's public headers, and nothing stands beside them.
(cd "$GRADUS_SOURCE_DIR/include" && find . -type f | sort) >public
(cd "$include" && find . -type f | sort) | diff public - >differences ||
  fail "other headers are installed than include/ has: $(cat differences)"

# All of them at once, with nothing else to be found: what one includes is there, in any order.
# "gradus/gradus.h" is the last, so that no other lives by what it includes.
(cd "$include" && find gradus -name '*.h' ! -path gradus/gradus.h | sort -r) >headers
echo gradus/gradus.h >>headers
sed 's/.*/#include "&"/' headers >all.cpp
# shellcheck disable=SC2046
c++ -fsyntax-only -Wall -Wextra -Werror -Wno-missing-field-initializers ${CXXFLAGS-} all.cpp \
  $(pkg-config --cflags gradus) || fail 'the installed headers do not compile'

# Symbols by their mangled names: the namespaces in front, whatever a symbol takes or returns.
nm -D --defined-only "$lib/libgradus.so" | awk '{print $NF}' >symbols
[ "$(grep -c '_ZN6gradus' symbols)" -gt 300 ] || fail 'the library shows too little'
inside=$(grep -E '^_Z[A-Zhv0-9_]*N[KVRO]*6gradus(6fusion|7kernels|4work|7devices|11interpreter|3cli)' symbols |
  c++filt | head -5) || true
[ -z "$inside" ] || fail "symbols of what is internal are shown: $inside"
# Nor the insides of public classes, and what folders keep for themselves.
for name in gradus::State::Impl gradus::autograd::Engine::Core gradus::AtomicFile gradus::ZipReader \
  gradus::ops::bound_call gradus::ops::evaluate gradus::ops::Exp gradus::autograd::TaskGraph; do
  shown=$(c++filt <symbols | grep -E "(^|for )$name(::|\\(|\$)" | head -2) || true
  [ -z "$shown" ] || fail "$name is shown: $shown"
done

# What is thrown is caught by its type on the other side.
cat >edge.cpp <<'END'
#include <cstdio>
#include "gradus/gradus.h"
int main() {
  try {
    gradus::ir::parse("graph g { stage 0 () { return %x } }", "g.ir");
  } catch (const gradus::InternalError&) {
    return 1;
  } catch (const gradus::Error& e) {
    std::printf("%s\n", e.bare().c_str());
  }
  try {
    gradus::use_device(*gradus::Context::default_context(), {gradus::DeviceKind::cuda, 999});
  } catch (const gradus::ResourceError&) {
    std::printf("no such device\n");
  }
}
END
# shellcheck disable=SC2046
c++ ${CXXFLAGS-} edge.cpp -o edge $(pkg-config --cflags --libs gradus)
LD_LIBRARY_PATH=$lib ./edge >out || fail 'an exception was not caught'
[ "$(wc -l <out)" = 2 ] || { cat out >&2; fail 'an exception was not caught by its type'; }
