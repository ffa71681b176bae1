// What a bound kernel does, for a device that has code of its own for it. The families of kernels
// say so themselves, beside what they run on the CPU: no operator is known by name.
#pragma once

#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "ops/accumulate.h"
#include "ops/axes.h"
#include "ops/conv_columns.h"
#include "ops/gemm.h"
#include "ops/index_kernel.h"
#include "ops/reduce_kernel.h"
#include "ops/scan_kernel.h"

namespace gradus::ops {

// Lists of copies and fills, in order: see Copies. A shape is collapsed.
struct DeviceMove {
  Sizes shape;
  Window source, target;
  bool fills = false;
  Pattern pattern;
};
struct DeviceMoves {
  std::vector<DeviceMove> moves;
};
std::vector<DeviceMove> device_moves(const Copies& copies);

// Reading and writing where indices say: see SlabPlan and ElementPlan, of which this is either. For
// each place of `shape` the element on the indexed side lies at the sum of the strides and of each
// index times its step. Places that differ in `serial` dimensions alone may meet, and are written
// in row-major order.
struct DeviceIndexing {
  const ir::Operator* op = nullptr;  // for messages
  IndexSides sides;
  Sizes shape, plain, indexed;
  int64_t indexed_offset = 0;  // in elements
  SmallVector<bool, 6> serial;
  SmallVector<IndexOperand, 2> indices;  // strides over `shape`; there may be none
  std::vector<DeviceMove> begin, end;    // before and after
  // Where sums are kept that are not kept where they end: bytes in the scratch memory.
  std::optional<size_t> sums;
  // Of the elements on the indexed side.
  DType indexed_dtype() const { return sums ? accumulation_dtype(sides.dtype) : sides.dtype; }
};

// See bind_reduction: operand 0 into result 0.
struct DeviceReduction {
  Reducer reducer;
  DType in, out;
  Axes kept, reduced;  // never empty
  int64_t outputs = 1, count = 1;
};

// See Gemm: operands 0 and 1 into result 0.
struct DeviceProduct {
  Gemm gemm;
  bool large = false;  // for a library, where there is one: it adds up in an order of its own
  // By a library or not at all: operand 2, n elements without gaps, is added to each row.
  bool adds_row = false;
};

// See ops/conv_kernel.h: operands 0 and 1 into result 0.
struct DeviceConvolution {
  enum class Direction : uint8_t { result, image, kernel };
  Direction direction;
  ConvAxes axes;
  int64_t groups = 1;
  Layout first, second, result;
  // Of `kernel`: the batch is cut into parts, an image's positions into tiles of this width, and
  // sums of each add up in order.
  int64_t parts = 1, width = 1;
};

// What a triangle keeps of operand 0; the rest of result 0 is zero.
struct DeviceTriangle {
  Layout x;
  int64_t diagonal = 0;
  bool lower = true;
};

// result 0 [i] = first + i * step, in the type that this dtype computes in.
struct DeviceRange {
  DType dtype;
  int64_t count = 0;
  bool integral = true;  // the integers, else the floats
  int64_t start = 0, step = 0;
  double first = 0, by = 0;
};

// See ops/scan_kernel.h: operands 0 (and 1, of a recurrence) into result 0, along `dim`. Not of
// log_sum_exp.
struct DeviceScan {
  Scan scan;
  ScanOptions options;
  int dim = 0;
  SmallVector<Layout, 2> in;
  DType out;
};

// A pointwise operator of integers that refuses a divisor of zero: operands 0 and 1 into result 0,
// whose elements lie in order. The strides are over its shape, which is collapsed.
struct DeviceDivision {
  const ir::Operator* op = nullptr;
  Sizes shape;
  std::array<DType, 2> in{};
  std::array<Sizes, 2> strides;
  DType out;
};

// See ops/im2col.cpp: images [N, C, H, W] and their columns [N, C * taps, windows], of which the
// result's elements lie in order. `folds`: the columns add up to the images, tap by tap.
struct DeviceColumns {
  DType dtype;
  bool folds = false;
  ConvAxes axes;  // the last two
  ConvTensor image;
  Sizes columns;  // strides
  int64_t batch = 0, channels = 0;
};

// See ops/max_pool_kernel.h: operand 0 into result 0, the places in an image into result 1, which
// are i64. The elements of both lie in order.
struct DeviceMaxPool {
  DType dtype = DType::f32;
  ConvAxes axes;
  ConvTensor x;
  int64_t channels = 0, planes = 0, windows = 1;  // planes: images times channels
};

// See ops/random.cpp: philox, keyed by the two numbers of operand 0, into result 0: i64, in order.
struct DeviceRandomBits {
  int64_t key_stride = 1, count = 0;
};

// See ops/matrix_kernel.cpp: the triangle of operand 0 and the columns of operand 1, with the same
// dimensions before the last two, into result 0, of operand 1's dtype and in order. Sums are f64.
struct DeviceSolve {
  Layout a, b;
  bool upper = false, transpose = false;
};

// See ops/arg_kernel.h: operand 0's places into result `index`, its elements into result `value`,
// unless that is -1.
struct DeviceExtremum {
  bool greatest = true;
  DType dtype;
  Axes kept, reduced;  // never empty
  int64_t outputs = 1, count = 1;
  int value = -1, index = 0;
};

// See ops/sorting.cpp: rows of operand 0 in order, the first `kept` of each into result 0, and
// where they were into result 1, which is i64. Element i of row r lies at r / inner * outer_stride
// + r % inner + i * step of both.
struct DeviceSort {
  Layout x;  // its rows' dimension last
  int64_t rows = 0, kept = 0, inner = 1, outer_stride = 0, step = 1;
  bool descending = false;
};

struct DeviceForm {
  std::variant<DeviceMoves, DeviceIndexing, DeviceReduction, DeviceProduct, DeviceConvolution,
               DeviceTriangle, DeviceRange, DeviceScan, DeviceDivision, DeviceColumns,
               DeviceMaxPool, DeviceRandomBits, DeviceSolve, DeviceExtremum, DeviceSort>
      what;
  size_t scratch_bytes = 0;  // as the kernel asks for
};

// Nothing where a kernel has no such form.
std::optional<DeviceForm> device_form(ir::KernelFunction run, const void* parameters);

// Of one family, nothing for kernels of others: in the family's own file.
std::optional<DeviceForm> form_of_copies(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_indexing(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_reduction(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_product(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_convolution(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_triangle(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_range(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_scan(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_division(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_columns(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_max_pool(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_random_bits(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_solve(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_extremum(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_sort(ir::KernelFunction run, const void* parameters);
std::optional<DeviceForm> form_of_window_sum(ir::KernelFunction run, const void* parameters);

}  // namespace gradus::ops
