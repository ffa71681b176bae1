// A double of cuBLASLt, which computes on the memory of a device of the interpreter's and checks
// what it is given as the library's header says it must be.
#pragma once

#include <string>
#include <vector>

#include "devices/cuda/products.h"
#include "tests/cuda/device.h"

namespace gradus::fusion::test {

// What one call was.
struct ProductCall {
  uint64_t rows, columns, inner;
  int type, batch;
  bool first_turned, second_turned;
  size_t workspace_bytes;
  bool adds_row;
};

struct ProductDouble {
  ptx::Memory* memory = nullptr;
  std::vector<ProductCall> calls;
  std::vector<std::string> faults;  // what of a call no library would take
  int left = 0;                     // descriptors that nobody destroyed
  size_t workspace_bytes = 1000;    // that it asks for
  bool without_epilogues = false;
};

// The one that the table's functions work on. Tests run one at a time.
ProductDouble& product_double();
// Its functions.
const cuda::ProductTable& product_double_table();

}  // namespace gradus::fusion::test
