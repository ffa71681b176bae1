// The benchmarks of devices run, at sizes that say nothing of speed, on a simulated one.
#include "bench/device/rows.h"
#include "devices/cuda/kernels.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

TEST(DeviceBench, RunsEveryRow) {
  GRADUS_NEEDS_NVRTC();
  auto device = std::make_shared<InterpretedDevice>();
  auto context = std::make_shared<Context>(ContextOptions{});
  KernelOptions options;
  options.folder = kernel_folder();
  context->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(device, options, nullptr));
  std::vector<std::string> said;
  const std::vector<bench::DeviceRow> rows = bench::run_device_rows(
      {.name = "simulated", .context = context, .copy = [](size_t) { return 1e-6; }},
      bench::DeviceSizes::tiny(), [&](const bench::DeviceRow& r) { said.push_back(r.name); });
  const std::vector<std::string> names = {"device-to-device copy",
                                          "pointwise chain, forward",
                                          "pointwise chain, backward",
                                          "pointwise chain, second backward",
                                          "softmax, forward",
                                          "softmax, backward",
                                          "softmax, second backward",
                                          "layer norm, forward",
                                          "layer norm, backward",
                                          "layer norm, second backward",
                                          "LSTM step",
                                          "WGAN-GP step",
                                          "transformer step",
                                          "4 tiny instructions"};
  EXPECT_EQ(said, names);
  EXPECT_GT(device->launches, 0u);
  // Of 256 elements: three read and one written, then the cotangent and three results, too.
  EXPECT_EQ(rows[1].moved_bytes, 4 * 256 * 4);
  EXPECT_EQ(rows[2].moved_bytes, 7 * 256 * 4);
  EXPECT_EQ(rows[3].moved_bytes, 11 * 256 * 4);
  const std::string table = bench::device_table(rows, "LSTM step\t2000\t-\n");
  EXPECT_NE(table.find("| LSTM step | "), std::string::npos) << table;
  EXPECT_NE(table.find(" | 2.000 ms ("), std::string::npos) << table;
  EXPECT_THROW(bench::device_table(rows, "no tabs"), Error);
  EXPECT_NE(bench::device_json("simulated", rows).find("\"LSTM step\""), std::string::npos);
}

}  // namespace
}  // namespace gradus::fusion::test
