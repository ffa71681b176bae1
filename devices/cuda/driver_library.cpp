#include "devices/cuda/driver_library.h"

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

constexpr std::string_view convolution_files[] = {"libcudnn.so.9", "libcudnn.so.8"};
constexpr std::string_view convolution_wheels[] = {"nvidia/cudnn/lib"};
constexpr LibraryNames convolution_names{
    "cuDNN", convolution_files, convolution_wheels,
    "Install cuDNN 9, or the Python package nvidia-cudnn-cu13 or nvidia-cudnn-cu12."};

constexpr std::string_view exchange_files[] = {"libnccl.so.2"};
constexpr std::string_view exchange_wheels[] = {"nvidia/nccl/lib"};
constexpr LibraryNames exchange_names{
    "NCCL", exchange_files, exchange_wheels,
    "Install NCCL 2.14 or newer, or the Python package nvidia-nccl-cu13 or nvidia-nccl-cu12.",
    "GRADUS_NCCL_LIBRARY"};

template <class F>
void load(Library& library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(library.function(name));
}
#define GRADUS_LOAD_FROM_DRIVER(result, member, name, arguments) \
  load(library_, table_.member, #name);
#define GRADUS_LOAD_LATE(result, member, name, arguments) load(l->library, l->table.member, #name);

}  // namespace

const DriverLibrary& DriverLibrary::get() {
  static const DriverLibrary& driver = *new DriverLibrary();  // never destroyed: as the driver
  return driver;
}

DriverLibrary::DriverLibrary() : library_(open_library(driver_names)) {
  GRADUS_DRIVER_FUNCTIONS(GRADUS_LOAD_FROM_DRIVER)
  if (!library_) return;
  int version = 0;
  const int fault = table_.init(0);
  if (!fault && table_.version(&version) == 0) {
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
    GRADUS_PRODUCT_FUNCTIONS(GRADUS_LOAD_LATE)
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
    GRADUS_CONVOLUTION_FUNCTIONS(GRADUS_LOAD_LATE)
    if (l->library) {
      const size_t v = l->table.version();  // 9.13.1 is 91301, 8.9.7 is 8907
      const size_t major = v < 10000 ? 1000 : 10000;
      l->library.version = fmt::format("{}.{}.{}", v / major, v % major / 100, v % 100);
    }
    return l;
  }();
  return late;
}

const LateLibrary<ExchangeTable>& exchange_library() {
  static const auto& late = *[] {
    auto* l = new LateLibrary<ExchangeTable>{open_library(exchange_names)};
    GRADUS_EXCHANGE_FUNCTIONS(GRADUS_LOAD_LATE)
    int v = 0;
    if (l->library && l->table.version(&v) == 0)  // 2.28.9 is 22809
      l->library.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
    return l;
  }();
  return late;
}

}  // namespace gradus::fusion::cuda
