// What is measured on a device: bandwidth of fused kernels by that of a copy, training steps, and
// what an instruction costs that has nothing to do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/context.h"

namespace gradus::bench {

struct DeviceSizes {
  int64_t chain_bytes = int64_t{1} << 30;  // of all three operands
  int64_t rows = 4096, columns = 4096;
  int64_t steps = 20, batch = 64, hidden = 512;  // of the LSTM
  int64_t critic_batch = 128, critic_in = 64, critic_hidden = 256;
  int64_t blocks_batch = 8, length = 128, width = 256;  // of the transformer
  int64_t instructions = 200;
  double seconds = 0.3;  // for which a row is run, at least
  static DeviceSizes tiny();
};

// Where rows are run. States of `context` run on the device; `copy` gives the seconds that copying
// so many bytes takes within its memory, the median of many.
struct DeviceUnderTest {
  std::string name;
  std::shared_ptr<Context> context;
  std::function<double(size_t bytes)> copy;
};

struct DeviceRow {
  std::string name;         // as bench/peers/cuda.py calls it
  double seconds = 0;       // a run's median
  double moved_bytes = 0;   // what has to be read and written at the least; 0: not asked
  double copy_seconds = 0;  // of a copy that moves as many bytes
  double goal = 0;          // of copy_seconds / seconds, or of `each` where that is not 0
  double each = 0;          // microseconds an instruction
  size_t host_copies = 0;   // instructions of it that the device has no code for
};

// All rows; `said` is told of each as it is there.
std::vector<DeviceRow> run_device_rows(const DeviceUnderTest& device, const DeviceSizes& sizes,
                                       const std::function<void(const DeviceRow&)>& said);

// Rows as a table of Markdown. `peers` are lines "name<TAB>eager_us<TAB>compiled_us" of
// bench/peers/cuda.py, of which either number may be "-"; empty: none were measured.
std::string device_table(const std::vector<DeviceRow>& rows, const std::string& peers);
// The same without peers as JSON, for plots.
std::string device_json(const std::string& device, const std::vector<DeviceRow>& rows);

// cuda:0. Throws ResourceError where that cannot be used.
DeviceUnderTest open_device_under_test();

// gradus-portable bench [--tiny] [--peers FILE] [--json FILE] [--only NAME]: prints the table.
int device_bench(int argc, char** argv);

}  // namespace gradus::bench
