# gradus_library(NAME [LINK lib...] [LINK_PRIVATE lib...] [OPTIONS flag...])
#
# The static library gradus_NAME of the .cpp files in the current folder. It sees every library
# made before it: the order of the calls is the order of the folders. A folder that has no .cpp
# file yet makes a library of headers.
set_property(GLOBAL PROPERTY GRADUS_LIBRARIES "")
# What they link and nobody else sees.
set_property(GLOBAL PROPERTY GRADUS_INSIDE "")
function(gradus_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;LINK_PRIVATE;OPTIONS")
  set(target gradus_${name})
  get_property(above GLOBAL PROPERTY GRADUS_LIBRARIES)
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${above} ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE})
    target_compile_options(${target} PRIVATE ${arg_OPTIONS})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
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
  add_library(gradus::gradus ALIAS gradus_all)
endfunction()

# gradus_program(TARGET SOURCES file... [LINK lib...])
function(gradus_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE gradus::gradus ${arg_LINK})
endfunction()
