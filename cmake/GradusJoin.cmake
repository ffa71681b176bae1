# A file's own lines are a small part of what is compiled for it: the rest are headers, and the
# templates of theirs that it uses. So the files of a folder are compiled some at a time, as one
# source that includes them: each instance of a template is then made once. What stands in an
# unnamed namespace is seen by the files joined with it, so a folder's names have to differ.
#
# With OFF each file is compiled by itself, as an editor that asks for its flags wants it.
option(GRADUS_JOIN "Compile several files of a folder as one" ON)
set(most_joined 24)

# gradus_joined(RESULT NAME source...): sources in the build folder that include all of these.
function(gradus_joined result name)
  set(${result} ${ARGN} PARENT_SCOPE)
  list(LENGTH ARGN count)
  if(NOT GRADUS_JOIN OR count LESS 2)
    return()
  endif()
  # As many in each.
  math(EXPR units "(${count} + ${most_joined} - 1) / ${most_joined}")
  math(EXPR each "(${count} + ${units} - 1) / ${units}")
  math(EXPR last "${count} - 1")
  set(compiled)
  foreach(first RANGE 0 ${last} ${each})
    list(SUBLIST ARGN ${first} ${each} part)
    set(text)
    foreach(source IN LISTS part)
      # By its path from the root: the compiler's cache then serves another copy of the tree.
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/joined/${name}_${first}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
    # A type that a source keeps for itself, outside of an unnamed namespace, may hold what is in one.
    set_source_files_properties(${unit} PROPERTIES
      COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
    list(APPEND compiled ${unit})
  endforeach()
  set(${result} ${compiled} PARENT_SCOPE)
endfunction()

# gradus_sources(RESULT NAME source... [ALONE regex...] [LOOPS regex...] [COLD regex...]): what is
# compiled for the sources. Names of files, without ".cpp", that match a regular expression
#   of ALONE  are not joined: those with flags of their own
#   of LOOPS  are not joined, since nothing beside a loop is to decide what is inlined there, and
#             compiled at -O3: g++ vectorises loops of unknown lengths there only
#   of COLD   are compiled at -O1: what runs seldom, or waits for a file or another compiler
function(gradus_sources result name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ALONE;LOOPS;COLD")
  set(joined ${arg_UNPARSED_ARGUMENTS})
  foreach(kind ALONE LOOPS COLD)
    set(${kind})
    foreach(regex IN LISTS arg_${kind})
      set(matching ${joined})
      list(FILTER matching INCLUDE REGEX "(^|/)(${regex})\\.cpp$")
      list(FILTER joined EXCLUDE REGEX "(^|/)(${regex})\\.cpp$")
      list(APPEND ${kind} ${matching})
    endforeach()
  endforeach()
  gradus_joined(joined ${name} ${joined})
  gradus_joined(cold ${name}_cold ${COLD})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT GRADUS_SANITIZE)
    set_property(SOURCE ${LOOPS} APPEND PROPERTY COMPILE_OPTIONS -O3)
    set_property(SOURCE ${cold} APPEND PROPERTY COMPILE_OPTIONS -O1)
  endif()
  set(${result} ${ALONE} ${LOOPS} ${joined} ${cold} PARENT_SCOPE)
endfunction()
