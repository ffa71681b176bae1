#include "fusion/cuda/driver_library.h"

#include <type_traits>

#include <fmt/format.h>

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view driver_files[] = {"libcuda.so.1"};
constexpr LibraryNames driver_names{
    "NVIDIA's driver",
    driver_files,
    {},
    "Install the driver of this machine's GPU, version 525 or newer, which brings libcuda.so.1; in "
    "a container, start it with the GPU and the driver's libraries passed in."};

constexpr std::string_view product_files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr std::string_view product_wheels[] = {"nvidia/cu13/lib", "nvidia/cublas/lib"};
constexpr LibraryNames product_names{"cuBLASLt", product_files, product_wheels,
                                     "Install CUDA 12 or 13, or the Python package nvidia-cublas."};

constexpr std::string_view convolution_files[] = {"libcudnn.so.9"};
constexpr std::string_view convolution_wheels[] = {"nvidia/cudnn/lib"};
constexpr LibraryNames convolution_names{
    "cuDNN", convolution_files, convolution_wheels,
    "Install cuDNN 9, or the Python package nvidia-cudnn-cu13 or nvidia-cudnn-cu12."};

template <class F>
void load(Library& library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(library.function(name));
}

}  // namespace

const DriverLibrary& DriverLibrary::get() {
  static const DriverLibrary& driver = *new DriverLibrary();  // never destroyed: as the driver
  return driver;
}

DriverLibrary::DriverLibrary() : library_(open_library(driver_names)) {
  auto load = [&](auto*& function, const char* name) { cuda::load(library_, function, name); };
  DriverTable& t = table_;
  load(t.init, "cuInit");
  load(t.version, "cuDriverGetVersion");
  load(t.error_name, "cuGetErrorName");
  load(t.error_string, "cuGetErrorString");
  load(t.device_count, "cuDeviceGetCount");
  load(t.device, "cuDeviceGet");
  load(t.device_name, "cuDeviceGetName");
  load(t.device_attribute, "cuDeviceGetAttribute");
  load(t.device_memory, "cuDeviceTotalMem_v2");
  load(t.retain_context, "cuDevicePrimaryCtxRetain");
  load(t.release_context, "cuDevicePrimaryCtxRelease_v2");
  load(t.set_context, "cuCtxSetCurrent");
  load(t.allocate, "cuMemAlloc_v2");
  load(t.free, "cuMemFree_v2");
  load(t.allocate_host, "cuMemAllocHost_v2");
  load(t.free_host, "cuMemFreeHost");
  load(t.copy_to_device, "cuMemcpyHtoDAsync_v2");
  load(t.copy_to_host, "cuMemcpyDtoHAsync_v2");
  load(t.copy, "cuMemcpyDtoDAsync_v2");
  load(t.fill, "cuMemsetD8Async");
  load(t.make_stream, "cuStreamCreate");
  load(t.destroy_stream, "cuStreamDestroy_v2");
  load(t.wait_for_stream, "cuStreamSynchronize");
  load(t.make_event, "cuEventCreate");
  load(t.destroy_event, "cuEventDestroy_v2");
  load(t.record_event, "cuEventRecord");
  load(t.query_event, "cuEventQuery");
  load(t.stream_waits, "cuStreamWaitEvent");
  load(t.load_module, "cuModuleLoadData");
  load(t.unload_module, "cuModuleUnload");
  load(t.find_function, "cuModuleGetFunction");
  load(t.launch, "cuLaunchKernel");
  if (!library_) return;
  int version = 0;
  const int fault = t.init(0);
  if (!fault && t.version(&version) == 0) {
    library_.version = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
    return;
  }
  library_.fault = fmt::format("{} does not start: {}. See what nvidia-smi says of the GPU",
                               library_.path, error_text(fault));
  library_.handle = nullptr;
}

std::string DriverLibrary::error_text(int fault) const {
  const char *name = nullptr, *text = nullptr;
  if (!table_.error_name || table_.error_name(fault, &name) || !name)
    return fmt::format("fault {}", fault);
  if (!table_.error_string || table_.error_string(fault, &text) || !text) text = "";
  return fmt::format("{}: {}", name, text);
}

const LateLibrary<ProductTable>& product_library() {
  static const auto& late = *[] {
    auto* l = new LateLibrary<ProductTable>{open_library(product_names)};
    load(l->library, l->table.version, "cublasLtGetVersion");
    load(l->library, l->table.create, "cublasLtCreate");
    load(l->library, l->table.destroy, "cublasLtDestroy");
    load(l->library, l->table.make_what, "cublasLtMatmulDescCreate");
    load(l->library, l->table.destroy_what, "cublasLtMatmulDescDestroy");
    load(l->library, l->table.set_what, "cublasLtMatmulDescSetAttribute");
    load(l->library, l->table.make_layout, "cublasLtMatrixLayoutCreate");
    load(l->library, l->table.destroy_layout, "cublasLtMatrixLayoutDestroy");
    load(l->library, l->table.set_layout, "cublasLtMatrixLayoutSetAttribute");
    load(l->library, l->table.make_wishes, "cublasLtMatmulPreferenceCreate");
    load(l->library, l->table.destroy_wishes, "cublasLtMatmulPreferenceDestroy");
    load(l->library, l->table.set_wishes, "cublasLtMatmulPreferenceSetAttribute");
    load(l->library, l->table.find, "cublasLtMatmulAlgoGetHeuristic");
    load(l->library, l->table.multiply, "cublasLtMatmul");
    if (l->library) {
      const size_t v = l->table.version();  // 13.1.2 is 130102
      l->library.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
    }
    return l;
  }();
  return late;
}

const LateLibrary<ConvolutionTable>& convolution_library() {
  static const auto& late = *[] {
    auto* l = new LateLibrary<ConvolutionTable>{open_library(convolution_names)};
    load(l->library, l->table.version, "cudnnGetVersion");
    load(l->library, l->table.create, "cudnnCreate");
    load(l->library, l->table.destroy, "cudnnDestroy");
    if (l->library) {
      const size_t v = l->table.version();  // 9.13.1 is 91301
      l->library.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
    }
    return l;
  }();
  return late;
}

}  // namespace gradus::fusion::cuda
