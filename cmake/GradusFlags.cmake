# Compiler settings for every target of the tree.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# A binding or a plug-in takes the library along in a shared module. Calls within the library are
# settled when it is compiled all the same.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
string(APPEND CMAKE_CXX_FLAGS " -fno-semantic-interposition")
# The shared library shows what public headers declare, and nothing else (gradus/internal.h).
set(CMAKE_CXX_VISIBILITY_PRESET hidden)

# -ffp-contract=off: a multiply-add is fused only where it is written as `fma`, so that the loops
# and the compiled kernels give the same bits.
# -fno-math-errno, -fno-trapping-math: nobody reads errno or the floating-point flags; both stand
# in the way of vectorising. Neither changes a result.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math)
# Designated initialisers leave members to their defaults on purpose.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -Werror=return-type)
# g++ 12 finds these in the standard library's strings and vectors once they are inlined, where
# nothing is wrong (GCC's bugs 105329 and 105651, mended in 13): they are shown, and stop nothing.
add_compile_options(
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds;-Wno-error=restrict;-Wno-error=stringop-overflow;-Wno-error=stringop-overread>")

# A tenth of g++'s time goes into collecting its garbage, at every collection through all that was
# precompiled. Few files ever hold a GiB, so they are compiled without.
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>")

# A program opens a shared library only where it calls it: protobuf cannot be opened twice in a
# process that unloads it.
add_link_options(LINKER:--as-needed)

if(GRADUS_SANITIZE)
  add_compile_options(-fsanitize=${GRADUS_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  # A sanitizer sees no index beyond a vector's size that stays within its memory.
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${GRADUS_SANITIZE})
  # A check at each access through a pointer takes a third of g++'s time. A null pointer stops a program
  # without it; the fuzz targets, which read foreign bytes, keep the others.
  if(GRADUS_SANITIZE MATCHES undefined AND NOT GRADUS_FUZZ)
    add_compile_options(-fno-sanitize=null,alignment,vptr,object-size)
  endif()
  # g++ sees uninitialised members of std::variant where the sanitizer's checks stand in between.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Branches are counted, so that libFuzzer sees what an input reaches.
if(GRADUS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(GRADUS_CCACHE ccache)
  mark_as_advanced(GRADUS_CCACHE)
  if(GRADUS_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/through-ccache)
  endif()
endif()
