# The libraries that others make. Those behind products and convolutions, compiled kernels and ONNX
# models may be left out; what then is not there says so (include/gradus/build.h).

option(GRADUS_LLVM "Compile kernels with LLVM; without it programs run unfused" ON)
option(GRADUS_ONEDNN "Products and convolutions by oneDNN; without it by our own loops" ON)
option(GRADUS_OPENBLAS "Products in f64 by OpenBLAS; without it by our own loops" ON)
option(GRADUS_ONNX "Read and write ONNX models" ON)

# Stops where what was looked for is not there.
function(gradus_needs option package)
  foreach(found IN LISTS ARGN)
    if(NOT ${found})
      message(FATAL_ERROR "${package} was not found. Install it, or leave it out: "
                          "-D${option}=OFF (${found} is what was looked for)")
    endif()
  endforeach()
endfunction()

# fmt: gradus_fmt. In a portable build it is compiled here, as Debian has it as a shared library
# alone; everything else is compiled as ever.
if(GRADUS_PORTABLE)
  file(GLOB fmt_source ${PROJECT_SOURCE_DIR}/portable/fmt.cpp)
  add_library(gradus_fmt STATIC ${fmt_source})
  target_compile_definitions(gradus_fmt
    PUBLIC $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
else()
  add_library(gradus_fmt INTERFACE)
  target_link_libraries(gradus_fmt INTERFACE fmt::fmt)
endif()

# Zip archives: gradus_zlib.
if(GRADUS_PORTABLE)
  set(ZLIB_USE_STATIC_LIBS ON)  # from CMake 3.24 on
endif()
find_package(ZLIB REQUIRED)
add_library(gradus_zlib INTERFACE)
target_link_libraries(gradus_zlib INTERFACE ZLIB::ZLIB)

# oneDNN: gradus_onednn. Its own package file wants the development files of OpenCL.
if(GRADUS_ONEDNN)
  find_path(GRADUS_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(GRADUS_ONEDNN_LIBRARY dnnl)
  # oneDNN splits its loops with OpenMP; it is told not to, by the runtime that it is linked with.
  find_library(GRADUS_OPENMP_LIBRARY gomp PATHS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
  mark_as_advanced(GRADUS_ONEDNN_INCLUDE GRADUS_ONEDNN_LIBRARY GRADUS_OPENMP_LIBRARY)
  gradus_needs(GRADUS_ONEDNN oneDNN
    GRADUS_ONEDNN_INCLUDE GRADUS_ONEDNN_LIBRARY GRADUS_OPENMP_LIBRARY)
  add_library(gradus_onednn INTERFACE)
  target_include_directories(gradus_onednn SYSTEM INTERFACE ${GRADUS_ONEDNN_INCLUDE})
  target_link_libraries(gradus_onednn INTERFACE ${GRADUS_ONEDNN_LIBRARY} ${GRADUS_OPENMP_LIBRARY})
endif()

# OpenBLAS: gradus_openblas. Its own package file names whichever variant Debian's alternatives
# point to. The serial variant, and inside of us: the threads are ours, and another BLAS in the
# process neither takes our calls nor gets its own answered by this one.
if(GRADUS_OPENBLAS)
  find_path(GRADUS_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial)
  find_library(GRADUS_OPENBLAS_LIBRARY libopenblas.a PATH_SUFFIXES openblas-serial)
  mark_as_advanced(GRADUS_OPENBLAS_INCLUDE GRADUS_OPENBLAS_LIBRARY)
  gradus_needs(GRADUS_OPENBLAS OpenBLAS GRADUS_OPENBLAS_INCLUDE GRADUS_OPENBLAS_LIBRARY)
  add_library(gradus_openblas INTERFACE)
  target_link_libraries(gradus_openblas INTERFACE ${GRADUS_OPENBLAS_LIBRARY} m)
  target_link_options(gradus_openblas INTERFACE LINKER:--exclude-libs,libopenblas.a)
endif()

# The kernel compiler: gradus_llvm. The shared library, whose symbols carry its version: another
# LLVM in the process is not met. Programs that make no kernels do not load it.
if(GRADUS_LLVM)
  # Each version takes itself alone for compatible. 19 and 22 are tested, and what lies between them
  # is written for; LLVM_DIR says which, where several are installed.
  set(versions 19.1 22.1 21.1 20.1)
  if(LLVM_DIR)
    find_package(LLVM QUIET CONFIG)
    if(NOT "${LLVM_VERSION_MAJOR}.${LLVM_VERSION_MINOR}" IN_LIST versions)
      set(LLVM_FOUND OFF)
    endif()
  else()
    foreach(version IN LISTS versions)
      if(NOT LLVM_FOUND)
        find_package(LLVM ${version} QUIET CONFIG)
      endif()
    endforeach()
  endif()
  gradus_needs(GRADUS_LLVM "LLVM 19.1 to 22.1" LLVM_FOUND)
  add_library(gradus_llvm INTERFACE)
  target_include_directories(gradus_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
  target_link_libraries(gradus_llvm INTERFACE LLVM)
endif()

# The messages that ONNX models are made of: gradus_onnx_messages. Of ONNX's own library nothing is
# used.
if(GRADUS_ONNX)
  find_path(GRADUS_ONNX_INCLUDE onnx/onnx_pb.h)
  find_library(GRADUS_ONNX_LIBRARY onnx_proto)
  find_library(GRADUS_PROTOBUF_LIBRARY protobuf)
  mark_as_advanced(GRADUS_ONNX_INCLUDE GRADUS_ONNX_LIBRARY GRADUS_PROTOBUF_LIBRARY)
  gradus_needs(GRADUS_ONNX "ONNX with protobuf"
    GRADUS_ONNX_INCLUDE GRADUS_ONNX_LIBRARY GRADUS_PROTOBUF_LIBRARY)
  add_library(gradus_onnx_messages INTERFACE)
  target_include_directories(gradus_onnx_messages SYSTEM INTERFACE ${GRADUS_ONNX_INCLUDE})
  target_compile_definitions(gradus_onnx_messages INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)
  target_link_libraries(gradus_onnx_messages INTERFACE ${GRADUS_ONNX_LIBRARY}
                        ${GRADUS_PROTOBUF_LIBRARY})
endif()
