# The shared library, what is installed of it, and how others find it.

# libgradus.so: all folders in one library. It shows what public headers declare; of that, names of
# namespace gradus and of the C interface. Before 1.0 every minor release is another interface.
get_property(libraries GLOBAL PROPERTY GRADUS_LIBRARIES)
get_property(inside GLOBAL PROPERTY GRADUS_INSIDE)
set(objects)
foreach(library IN LISTS libraries)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endif()
endforeach()
set(exports ${CMAKE_CURRENT_LIST_DIR}/exports.map)
add_library(gradus_shared SHARED ${objects})
target_link_libraries(gradus_shared PUBLIC fmt::fmt Threads::Threads
                      PRIVATE ${inside} ${CMAKE_DL_LIBS})
target_link_options(gradus_shared PRIVATE LINKER:--version-script=${exports})
set_target_properties(gradus_shared PROPERTIES
  OUTPUT_NAME gradus EXPORT_NAME gradus LINK_DEPENDS ${exports}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(TARGET gradus_llvm_module)
  add_dependencies(gradus_shared gradus_llvm_module)
endif()
target_compile_features(gradus_shared INTERFACE cxx_std_20)
# As the library: a multiply-add is fused only where it is written as one.
target_compile_options(gradus_shared INTERFACE -ffp-contract=off)

include(CMakePackageConfigHelpers)
# Public headers alone are installed, and each is found as "gradus/NAME.h".
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/gradus)
target_include_directories(gradus_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradus/ DESTINATION ${headers})
install(TARGETS gradus_shared EXPORT gradus-targets)
if(TARGET gradus_llvm_module)
  install(TARGETS gradus_llvm_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
install(EXPORT gradus-targets NAMESPACE gradus:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/gradus-config.cmake.in
  ${PROJECT_BINARY_DIR}/gradus-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradus-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradus-config.cmake
        ${PROJECT_BINARY_DIR}/gradus-config-version.cmake DESTINATION ${package})
file(RELATIVE_PATH prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/gradus.pc.in ${PROJECT_BINARY_DIR}/gradus.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gradus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
