# Headers that most files read, compiled once: reading them is a third of a build otherwise. A file
# includes what it uses all the same; with GRADUS_PRECOMPILE=OFF it shows.
option(GRADUS_PRECOMPILE "Precompile the headers that most files read" ON)

set(standard <algorithm> <array> <atomic> <cmath> <cstdint> <functional> <map> <memory> <mutex>
    <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
    <fmt/format.h>)
# Of ours, those that nine files in ten read: what operators and work are.
set(vocabulary <gradus/operator.h> <work/work.h>)
# As CMake has it they would be a system's headers, of which the compiler warns of nothing.
set(CMAKE_PCH_PROLOGUE "")

# gradus_precompiled(TARGET [FROM other | ALSO header...]): `other` was compiled with the same flags.
function(gradus_precompiled target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FROM" "ALSO")
  if(NOT GRADUS_PRECOMPILE)
    return()
  endif()
  if(arg_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  else()
    target_precompile_headers(${target} PRIVATE ${standard} ${vocabulary} ${arg_ALSO})
  endif()
endfunction()
