// gradus-portable: the tool, and beside its commands `test`, which runs the tests that came with
// it, and `bench`, which measures a device.
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

#include "bench/device/rows.h"
#include "devices/cuda/kernels.h"
#include "tests/corpus/on_device.h"
#include "tests/cuda/device.h"
#include "tests/start.h"
#include "tools/cli.h"

namespace {

// The folder that the program lies in.
std::string home() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, n < 0 ? 0 : static_cast<size_t>(n));
  return program.substr(0, program.rfind('/'));
}

// The tests' files lie beside the program; kernels are kept there, where that can be written.
void set_places() {
  const std::string folder = home(), kernels = folder + "/cuda_kernels";
  setenv("GRADUS_SOURCE_DIR", folder.c_str(), 0);
  setenv("GRADUS_CUDA_TEST_KERNELS",
         access(folder.c_str(), W_OK) == 0 ? kernels.c_str() : "/tmp/gradus_cuda_kernels", 0);
}

// $GRADUS_TEST_DEVICE=interpreter: the reference cases and samples that ask for a device run on one
// behind the PTX interpreter. It shows that they run; on a GPU it is not set.
void set_device() {
  const char* given = std::getenv("GRADUS_TEST_DEVICE");
  if (!given || std::string_view(given) != "interpreter") return;
  auto context = std::make_shared<gradus::Context>(gradus::ContextOptions{});
  gradus::KernelOptions options;
  options.folder = std::getenv("GRADUS_CUDA_TEST_KERNELS");
  context->replace_part<gradus::fusion::Kernels>(
      std::make_shared<gradus::fusion::cuda::CudaKernels>(
          std::make_shared<gradus::fusion::test::InterpretedDevice>(), options, nullptr));
  gradus::corpus::set_test_device(std::move(context));
}

}  // namespace

int main(int argc, char** argv) {
  set_places();
  if (argc > 1 && std::string_view(argv[1]) == "test") {
    argv[1] = argv[0];
    set_device();
    return gradus::test::run_tests(argc - 1, argv + 1);
  }
  if (argc > 1 && std::string_view(argv[1]) == "bench")
    return gradus::bench::device_bench(argc - 1, argv + 1);
  return gradus::cli::tool(argc, argv);
}
