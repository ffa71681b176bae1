# gradus_library(NAME [LINK lib...] [LINK_PRIVATE lib...] [SOURCES file...] [WITHOUT name...]
#                [ALONE regex...] [LOOPS regex...] [COLD regex...])
#
# The static library gradus_NAME of the .cpp files in the current folder (or of SOURCES). It sees
# every library made before it: the order of the calls is the order of the folders. A folder that
# has no .cpp file yet makes a library of headers. WITHOUT: a build that leaves a library out takes
# absent/name.cpp in the place of name.cpp. ALONE, LOOPS, COLD: how files are compiled (GradusJoin).
set_property(GLOBAL PROPERTY GRADUS_LIBRARIES "")
# What they link and nobody else sees.
set_property(GLOBAL PROPERTY GRADUS_INSIDE "")
function(gradus_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;LINK_PRIVATE;SOURCES;WITHOUT;ALONE;LOOPS;COLD")
  set(target gradus_${name})
  # Public headers are found as "gradus/NAME.h", others by their paths from the root of the tree.
  set(roots ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  get_property(above GLOBAL PROPERTY GRADUS_LIBRARIES)
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(arg_SOURCES)
    set(sources ${arg_SOURCES})
  endif()
  foreach(absent IN LISTS arg_WITHOUT)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${absent}.cpp)
    list(APPEND sources absent/${absent}.cpp)
  endforeach()
  if(sources)
    gradus_sources(compiled ${target} ${sources}
      ALONE ${arg_ALONE} LOOPS ${arg_LOOPS} COLD ${arg_COLD})
    add_library(${target} STATIC ${compiled})
    target_include_directories(${target} PUBLIC ${roots})
    target_link_libraries(${target} PUBLIC ${above} ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE})
    if(TARGET gradus_base AND NOT target STREQUAL "gradus_base")
      gradus_precompiled(${target} FROM gradus_base)
    else()
      gradus_precompiled(${target})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${roots})
    target_link_libraries(${target} INTERFACE ${above} ${arg_LINK})
  endif()
  set_property(GLOBAL APPEND PROPERTY GRADUS_LIBRARIES ${target})
  set_property(GLOBAL APPEND PROPERTY GRADUS_INSIDE ${arg_LINK_PRIVATE})
endfunction()

# gradus::gradus, all the libraries at once: what a program links.
function(gradus_umbrella)
  get_property(libraries GLOBAL PROPERTY GRADUS_LIBRARIES)
  add_library(gradus_all INTERFACE)
  target_link_libraries(gradus_all INTERFACE ${libraries})
  if(TARGET gradus_llvm_module)
    add_dependencies(gradus_all gradus_llvm_module)
  endif()
  add_library(gradus::gradus ALIAS gradus_all)
endfunction()

# gradus_program(TARGET SOURCES file... [LINK lib...])
function(gradus_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE gradus::gradus ${arg_LINK})
endfunction()
