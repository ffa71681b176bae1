#include "devices/cuda/products.h"

#include <algorithm>

#include "gradus/error.h"

namespace gradus::fusion::cuda {

namespace {

using namespace cublaslt;

constexpr uint64_t most_workspace_of_products =
    32 << 20;  // what the library is said to want on Hopper

std::optional<int> cublas_type_of(DType d) {
  switch (d) {
    case DType::f64:
      return type_f64;
    case DType::f32:
      return type_f32;
    case DType::f16:
      return type_f16;
    case DType::bf16:
      return type_bf16;
    default:
      return std::nullopt;
  }
}

// A matrix of `rows` by `columns`, row by row as we see it, and how the library takes it: as its
// transpose by columns, or turned.
struct Side {
  int64_t rows, columns, step;
  bool turned;
};
std::optional<Side> side_of(int64_t rows, int64_t columns, int64_t by_row, int64_t by_column) {
  if ((by_column == 1 || columns == 1) && (by_row >= columns || rows == 1))
    return Side{columns, rows, std::max(by_row, columns), false};
  if ((by_row == 1 || rows == 1) && (by_column >= rows || columns == 1))
    return Side{rows, columns, std::max(by_column, rows), true};
  return std::nullopt;
}

}  // namespace

bool Products::wants(const work::Gemm& g) const {
  constexpr double least_work = 1 << 20;  // multiplications that a call is worth
  return always_ || work::is_large(g) ||
         (g.dtype == DType::f16 && std::min({g.m, g.n, g.k}) > 1 && work::work_of(g) >= least_work);
}

Products::Products(const ProductTable& table, bool always) : t_(table), always_(always) {
  if (const int fault = t_.create(&handle_))
    throw ResourceError("cuBLASLt does not start: status {}", fault);
}

Products::~Products() { t_.destroy(handle_); }

std::shared_ptr<const Product> Products::make(const work::Gemm& g, uint32_t alignment,
                                              bool adds_row) const {
  if (g.batch.size() > 1 || std::min({g.m, g.n, g.k}) < 1 || !cublas_type_of(g.dtype))
    return nullptr;
  std::shared_ptr<Product> product(new Product(t_, handle_));
  if (adds_row && g.dtype != DType::f32 && g.dtype != DType::f64) return nullptr;
  if (!product->describe(g, g.batch.empty() ? 1 : g.batch[0].size) ||
      (adds_row && !product->describe_row(alignment)) || !product->find_algorithm(alignment))
    return nullptr;
  return product;
}

bool Product::describe(const work::Gemm& g, int64_t batch) {
  const auto first = side_of(g.k, g.n, g.b_row, g.b_column);
  const auto second = side_of(g.m, g.k, g.a_row, g.a_column);
  if (!first || !second || batch < 1 || batch > INT32_MAX) return false;
  f64_ = g.dtype == DType::f64;
  const int type = *cublas_type_of(g.dtype);
  if (t_.make_what(&what_, f64_ ? compute_f64 : compute_f32, f64_ ? type_f64 : type_f32))
    return false;
  const int32_t turn_first = first->turned ? transposed : as_it_is;
  const int32_t turn_second = second->turned ? transposed : as_it_is;
  if (t_.set_what(what_, what_first_transposed, &turn_first, sizeof turn_first) ||
      t_.set_what(what_, what_second_transposed, &turn_second, sizeof turn_second))
    return false;
  auto layout = [&](LtLayout*& to, int64_t rows, int64_t columns, int64_t step, int64_t stride) {
    if (t_.make_layout(&to, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                       step))
      return false;
    if (batch == 1) return true;
    const auto count = static_cast<int32_t>(batch);
    return !t_.set_layout(to, layout_batch_count, &count, sizeof count) &&
           !t_.set_layout(to, layout_batch_stride, &stride, sizeof stride);
  };
  const int64_t by_a = batch > 1 ? g.batch[0].a_stride : 0;
  const int64_t by_b = batch > 1 ? g.batch[0].b_stride : 0;
  return layout(first_, first->rows, first->columns, first->step, by_b) &&
         layout(second_, second->rows, second->columns, second->step, by_a) &&
         layout(result_, g.n, g.m, g.n, g.m * g.n);
}

// The library looks at the row's address while it searches: one of that alignment stands for all.
bool Product::describe_row(uint32_t alignment) {
  adds_row_ = true;
  const uint64_t address = alignment;
  return !t_.set_what(what_, what_epilogue, &epilogue_bias, sizeof epilogue_bias) &&
         !t_.set_what(what_, what_bias, &address, sizeof address);
}

bool Product::find_algorithm(uint32_t alignment) {
  LtWishes* wishes = nullptr;
  if (t_.make_wishes(&wishes)) return false;
  bool good = !t_.set_wishes(wishes, wish_workspace, &most_workspace_of_products,
                             sizeof most_workspace_of_products);
  for (int side = 0; side < 4; ++side)
    good = good && !t_.set_wishes(wishes, wish_alignment + side, &alignment, sizeof alignment);
  LtFound found{};
  int count = 0;
  good = good &&
         !t_.find(handle_, what_, first_, second_, result_, result_, wishes, 1, &found, &count);
  t_.destroy_wishes(wishes);
  if (!good || count < 1 || found.state) return false;
  algorithm_ = found.algorithm;
  workspace_bytes_ = found.workspace_bytes;
  return true;
}

Product::~Product() {
  for (LtLayout* l : {first_, second_, result_})
    if (l) t_.destroy_layout(l);
  if (what_) t_.destroy_what(what_);
}

int Product::run(DevicePointer a, DevicePointer b, DevicePointer row, DevicePointer c,
                 DevicePointer workspace, DriverStream stream) const {
  std::unique_lock<std::mutex> guard;
  if (adds_row_) {
    guard = std::unique_lock(mutex_);
    if (const int status = t_.set_what(what_, what_bias, &row, sizeof row)) return status;
  }
  // Alpha and beta are read before the call returns.
  const double one = 1, zero = 0;
  const float one_f32 = 1, zero_f32 = 0;
  auto* to = reinterpret_cast<void*>(c);
  return t_.multiply(handle_, what_, f64_ ? static_cast<const void*>(&one) : &one_f32,
                     reinterpret_cast<const void*>(b), first_, reinterpret_cast<const void*>(a),
                     second_, f64_ ? static_cast<const void*>(&zero) : &zero_f32, to, result_, to,
                     result_, &algorithm_, reinterpret_cast<void*>(workspace), workspace_bytes_,
                     stream);
}

}  // namespace gradus::fusion::cuda
