# "gradus/gradus.h" is all that a program includes: an example of the tree, built against an install
# tree with pkg-config and with CMake, by nothing but that.
# SPEC W1
# $BUILD is the build folder, $GRADUS_SOURCE_DIR the tree; the folder is empty and ours.
set -eu
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.log
[ -f "$prefix/include/gradus/gradus.h" ] || fail 'the header is not installed'
cp "$GRADUS_SOURCE_DIR/examples/parse_and_run.cpp" .

pc=$(find "$prefix" -name gradus.pc)
export PKG_CONFIG_PATH=${pc%/*}
lib=${pc%/pkgconfig/*}
# shellcheck disable=SC2046
c++ -Wall -Wextra -Werror -Wno-missing-field-initializers ${CXXFLAGS-} parse_and_run.cpp -o by_pkg \
  $(pkg-config --cflags --libs gradus)
LD_LIBRARY_PATH=$lib ./by_pkg >out || fail 'the example built by pkg-config failed'
grep -q 'total 2.006409' out || fail 'the example printed something else'

cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(umbrella LANGUAGES CXX)
find_package(gradus 0.1 REQUIRED)
add_executable(by_cmake parse_and_run.cpp)
target_link_libraries(by_cmake PRIVATE gradus::gradus)
END
cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="${CXXFLAGS-}" \
  >configure.log
cmake --build build >build.log || { cat build.log >&2; fail 'the example does not build'; }
./build/by_cmake >out2 || fail 'the example built by CMake failed'
cmp out out2 || fail 'the two print different things'
