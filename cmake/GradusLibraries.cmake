# The libraries behind products and convolutions: gradus_onednn and gradus_openblas.

# Their own package files are of no use: oneDNN's wants the development files of OpenCL, and
# OpenBLAS's names whichever variant Debian's alternatives point to.
find_path(GRADUS_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(GRADUS_ONEDNN_LIBRARY dnnl REQUIRED)
# oneDNN splits its loops with OpenMP; it is told not to, by the runtime that it is linked with.
find_library(GRADUS_OPENMP_LIBRARY gomp
             PATHS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
mark_as_advanced(GRADUS_ONEDNN_INCLUDE GRADUS_ONEDNN_LIBRARY GRADUS_OPENMP_LIBRARY)
add_library(gradus_onednn INTERFACE)
target_include_directories(gradus_onednn SYSTEM INTERFACE ${GRADUS_ONEDNN_INCLUDE})
target_link_libraries(gradus_onednn INTERFACE ${GRADUS_ONEDNN_LIBRARY} ${GRADUS_OPENMP_LIBRARY})

# The serial variant, and inside of us: the threads are ours, and another BLAS in the process
# neither takes our calls nor gets its own answered by this one.
find_path(GRADUS_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial REQUIRED)
find_library(GRADUS_OPENBLAS_LIBRARY libopenblas.a PATH_SUFFIXES openblas-serial REQUIRED)
mark_as_advanced(GRADUS_OPENBLAS_INCLUDE GRADUS_OPENBLAS_LIBRARY)
add_library(gradus_openblas INTERFACE)
target_include_directories(gradus_openblas SYSTEM INTERFACE ${GRADUS_OPENBLAS_INCLUDE})
target_link_libraries(gradus_openblas INTERFACE ${GRADUS_OPENBLAS_LIBRARY} m)
target_link_options(gradus_openblas INTERFACE LINKER:--exclude-libs,libopenblas.a)

# The kernel compiler: gradus_llvm. The shared library, whose symbols carry its version: another
# LLVM in the process is not met. Programs that make no kernels do not load it.
find_package(LLVM 19.1 REQUIRED CONFIG)
add_library(gradus_llvm INTERFACE)
target_include_directories(gradus_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(gradus_llvm INTERFACE LLVM)
target_link_options(gradus_llvm INTERFACE LINKER:--as-needed)

# The messages that ONNX models are made of: gradus_onnx_messages. Of ONNX's own library nothing is
# used.
find_path(GRADUS_ONNX_INCLUDE onnx/onnx_pb.h REQUIRED)
find_library(GRADUS_ONNX_LIBRARY onnx_proto REQUIRED)
find_library(GRADUS_PROTOBUF_LIBRARY protobuf REQUIRED)
mark_as_advanced(GRADUS_ONNX_INCLUDE GRADUS_ONNX_LIBRARY GRADUS_PROTOBUF_LIBRARY)
add_library(gradus_onnx_messages INTERFACE)
target_include_directories(gradus_onnx_messages SYSTEM INTERFACE ${GRADUS_ONNX_INCLUDE})
target_compile_definitions(gradus_onnx_messages INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)
target_link_libraries(gradus_onnx_messages INTERFACE ${GRADUS_ONNX_LIBRARY}
                      ${GRADUS_PROTOBUF_LIBRARY})
