# LLVM is opened when the first kernel is compiled, by the module that lies beside the library.
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
tool=$prefix/bin/gradus
module=$(find "$prefix" -name 'libgradus_llvm-*.so')
if "$tool" --version | grep -q 'without .*LLVM'; then
  [ -z "$module" ] || fail 'a build without LLVM has a module for it'
  exit 0
fi
[ -f "$module" ] || fail 'the module is not installed'
cat >p.ir <<'END'
graph p {
  stage 0 (%x: f32[N]) {
    %a = tanh(%x)
    %b = mul(%a, %a)
    %y = add(%b, %x)
    return %y
  }
}
END
run() { "$tool" run p.ir --random 1 --set N=10000 "$@" >out 2>err || { cat err >&2; return 1; }; }
code() { run --fusion first --dump-after x86-64-v3; }

# Which files a process opens is told by the loader.
opens() { LD_DEBUG=files LD_DEBUG_OUTPUT=$PWD/files "$@" >out 2>err && grep -q libLLVM files.* ; }
rm -f files.*
if opens "$tool" --version; then fail '--version opens LLVM'; fi
rm -f files.*
if opens "$tool" run p.ir --random 1 --set N=10; then fail 'a run without kernels opens LLVM'; fi
rm -f files.*
opens "$tool" run p.ir --random 1 --set N=10000 --fusion first || fail 'a kernel was compiled without LLVM'
code || fail 'the installed module makes no code'
grep -q ymm out || fail 'no assembly was printed'

# Without it programs run, a state that would compile behind its runs as well, and who asks for
# kernels is told which file is missing.
cat >small.cpp <<'END'
#include <cstdio>
#include "gradus/state.h"
#include "gradus/text.h"
using namespace gradus;
int main() {
  auto context = std::make_shared<Context>(ContextOptions{
      .log = [](LogLevel, std::string_view text) { std::printf("%s\n", std::string(text).c_str()); }});
  auto code = Code::compile(ir::parse("graph p { stage 0 (%x: f32[N]) {\n%a = tanh(%x)\n"
                                      "%b = mul(%a, %a)\n%y = add(%b, %x)\nreturn %y } }")
                                .program());
  const Tensor x = Tensor::zeros(DType::f32, std::array<int64_t, 1>{100000});
  for (int i = 0; i < 2; ++i) State(code, context).run(std::array{x});
}
END
export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name gradus.pc)")
# shellcheck disable=SC2046
c++ ${CXXFLAGS-} small.cpp -o small $(pkg-config --cflags --libs gradus)
lib=$(dirname "$module")
mv "$module" away.so
run || fail 'a program does not run without the module'
LD_LIBRARY_PATH=$lib ./small >out || fail 'a state does not run without the module'
[ "$(grep -c "programs run unfused: .*${module##*/}" out)" = 1 ] || { cat out; fail 'the log was not told once'; }
refused() {
  if run --fusion "$1" 2>/dev/null; then fail "$2 makes kernels"; fi
  grep -qF "$3" err || { cat err >&2; fail "expected: $3"; }
}
refused first 'no module' "${module##*/}"
refused behind 'no module' "${module##*/}"
# One that is not ours is refused by name.
echo 'int other;' >other.c
cc -shared -fPIC other.c -o "$module"
refused first 'another module' "${module##*/} is not of Gradus"
