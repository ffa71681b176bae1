#include "tests/cuda/product_double.h"

#include <cstring>

#include "kernels/gemm.h"

namespace gradus::fusion::cuda {

struct CublasLtHandle {
  int mark = 4711;
};
struct CublasLtMatmulDesc {
  int compute, scale;
  int32_t turned[2] = {0, 0};
  uint32_t epilogue = 1;  // none
  uint64_t bias = 0;
};
struct CublasLtMatrixLayout {
  int type;
  uint64_t rows, columns;
  int64_t step, stride = 0;
  int32_t batch = 1;
};
struct CublasLtMatmulPreference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

}  // namespace gradus::fusion::cuda

namespace gradus::fusion::test {

namespace {

using namespace cuda;

constexpr int ok = 0, not_supported = 15;

void expect(bool good, const char* what) {
  if (!good) product_double().faults.emplace_back(what);
}

DType dtype_of_type(int type) {
  return type == 0 ? DType::f32 : type == 1 ? DType::f64 : type == 2 ? DType::f16 : DType::bf16;
}

int create(CublasLtHandle** h) {
  *h = new CublasLtHandle;
  ++product_double().left;
  return ok;
}
int destroy(CublasLtHandle* h) {
  delete h;
  --product_double().left;
  return ok;
}
int make_what(LtDescriptor** d, int compute, int scale) {
  expect((compute == 68 && scale == 0) || (compute == 70 && scale == 1), "type of computing");
  *d = new LtDescriptor{compute, scale};
  ++product_double().left;
  return ok;
}
int destroy_what(LtDescriptor* d) {
  delete d;
  --product_double().left;
  return ok;
}
int set_what(LtDescriptor* d, int attribute, const void* value, size_t bytes) {
  if (attribute == 7 && bytes == 4) {
    std::memcpy(&d->epilogue, value, 4);
    expect(d->epilogue == 4, "an epilogue that is no sum with a row");
  } else if (attribute == 8 && bytes == 8) {
    std::memcpy(&d->bias, value, 8);
  } else {
    expect((attribute == 3 || attribute == 4) && bytes == 4, "attribute of a product");
    std::memcpy(&d->turned[attribute - 3], value, 4);
  }
  return ok;
}
int make_layout(LtLayout** l, int type, uint64_t rows, uint64_t columns, int64_t step) {
  expect(step >= static_cast<int64_t>(rows), "leading dimension less than the rows");
  expect(rows > 0 && columns > 0, "an empty matrix");
  *l = new LtLayout{type, rows, columns, step};
  ++product_double().left;
  return ok;
}
int destroy_layout(LtLayout* l) {
  delete l;
  --product_double().left;
  return ok;
}
int set_layout(LtLayout* l, int attribute, const void* value, size_t bytes) {
  expect((attribute == 5 && bytes == 4) || (attribute == 6 && bytes == 8), "attribute of a layout");
  if (attribute == 5)
    std::memcpy(&l->batch, value, 4);
  else
    std::memcpy(&l->stride, value, 8);
  return ok;
}
int make_wishes(LtWishes** w) {
  *w = new LtWishes;
  ++product_double().left;
  return ok;
}
int destroy_wishes(LtWishes* w) {
  delete w;
  --product_double().left;
  return ok;
}
int set_wishes(LtWishes* w, int attribute, const void* value, size_t bytes) {
  if (attribute == 1 && bytes == 8)
    std::memcpy(&w->workspace, value, 8);
  else if (attribute >= 5 && attribute <= 8 && bytes == 4)
    std::memcpy(&w->alignment[attribute - 5], value, 4);
  else
    expect(false, "attribute of the wishes");
  return ok;
}

// The sizes fit: op(a) [rows, inner] times op(b) [inner, columns] is d [rows, columns].
bool fits(const LtDescriptor* d, const LtLayout* a, const LtLayout* b, const LtLayout* c) {
  const uint64_t rows = d->turned[0] ? a->columns : a->rows,
                 k = d->turned[0] ? a->rows : a->columns;
  const uint64_t k_b = d->turned[1] ? b->columns : b->rows, n = d->turned[1] ? b->rows : b->columns;
  return rows == c->rows && n == c->columns && k == k_b && a->type == b->type &&
         a->type == c->type && a->batch == b->batch && a->batch == c->batch;
}

int find(CublasLtHandle* h, LtDescriptor* d, LtLayout* a, LtLayout* b, LtLayout* c, LtLayout* to,
         LtWishes* w, int most, LtFound* found, int* count) {
  expect(h->mark == 4711 && most == 1 && c == to, "arguments of the search");
  expect(fits(d, a, b, c), "sizes that do not fit");
  if (w->workspace < product_double().workspace_bytes) return not_supported;
  if (d->epilogue == 4) {
    if (product_double().without_epilogues) return not_supported;
    expect(d->bias != 0 && d->bias % w->alignment[0] == 0, "the address of a row that is added");
  }
  *found = {};
  // The algorithm stands for what it was chosen for.
  std::memcpy(found->algorithm.data, w->alignment, sizeof w->alignment);
  found->workspace_bytes = product_double().workspace_bytes;
  *count = 1;
  return ok;
}

std::vector<std::byte> read_matrix(const LtLayout* l, uint64_t address) {
  const size_t size = size_of(dtype_of_type(l->type));
  const auto elements = static_cast<size_t>((l->batch - 1) * l->stride) +
                        static_cast<size_t>(l->step) * (l->columns - 1) + l->rows;
  std::vector<std::byte> bytes(elements * size);
  product_double().memory->read(bytes.data(), address, bytes.size(), ptx::Memory::Undefined::zero);
  return bytes;
}

template <class T>
void add_row(uint64_t address, int64_t n, std::vector<std::byte>& z) {
  std::vector<T> row(static_cast<size_t>(n));
  product_double().memory->read(row.data(), address, row.size() * sizeof(T));
  T* sums = reinterpret_cast<T*>(z.data());
  for (size_t i = 0; i < z.size() / sizeof(T); ++i) sums[i] += row[i % row.size()];
}

// By our own loops, which take the matrices as they lie.
int multiply(CublasLtHandle* h, LtDescriptor* d, const void* alpha, const void* a, LtLayout* la,
             const void* b, LtLayout* lb, const void* beta, const void* c, LtLayout* lc, void* to,
             LtLayout* ld, const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
             DriverStream) {
  ProductDouble& self = product_double();
  expect(h->mark == 4711 && fits(d, la, lb, ld) && lc == ld && c == to, "arguments of a product");
  const bool f64 = d->scale == 1;
  expect(f64 ? *static_cast<const double*>(alpha) == 1 && *static_cast<const double*>(beta) == 0
             : *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0,
         "alpha and beta");
  uint32_t alignment[4];
  std::memcpy(alignment, algorithm->data, sizeof alignment);
  const void* pointers[] = {a, b, c, to};
  for (int i = 0; i < 4; ++i)
    expect(reinterpret_cast<uintptr_t>(pointers[i]) % alignment[i] == 0, "a pointer's alignment");
  expect(workspace_bytes >= self.workspace_bytes, "a small workspace");
  expect(reinterpret_cast<uintptr_t>(workspace) % 256 == 0, "the workspace's alignment");
  const std::vector<std::byte> dirt(workspace_bytes);
  self.memory->write(reinterpret_cast<uint64_t>(workspace), dirt.data(), dirt.size());
  self.calls.push_back({ld->rows, ld->columns, d->turned[0] ? la->rows : la->columns, ld->type,
                        ld->batch, d->turned[0] != 0, d->turned[1] != 0, workspace_bytes,
                        d->epilogue == 4});
  work::Gemm g;
  g.dtype = dtype_of_type(ld->type);
  g.m = static_cast<int64_t>(ld->columns);  // rows as we see them
  g.n = static_cast<int64_t>(ld->rows);
  g.k = static_cast<int64_t>(d->turned[0] ? la->rows : la->columns);
  g.a_row = d->turned[1] ? 1 : lb->step;
  g.a_column = d->turned[1] ? lb->step : 1;
  g.b_row = d->turned[0] ? 1 : la->step;
  g.b_column = d->turned[0] ? la->step : 1;
  expect(ld->step == g.n, "a result with gaps");
  g.batch = {{ld->batch, lb->stride, la->stride}};
  expect(ld->batch == 1 || ld->stride == g.m * g.n, "a batch with gaps");
  const auto x = read_matrix(lb, reinterpret_cast<uint64_t>(b));
  const auto y = read_matrix(la, reinterpret_cast<uint64_t>(a));
  std::vector<std::byte> z(static_cast<size_t>(ld->batch * g.m * g.n) * size_of(g.dtype));
  std::vector<std::byte> scratch(kernels::gemm_scratch_bytes(g, false) + 64);
  void* aligned = scratch.data();
  size_t room = scratch.size();
  std::align(64, room - 64, aligned, room);
  WorkerPool alone(1);
  kernels::gemm(g, x.data(), y.data(), z.data(), static_cast<std::byte*>(aligned), alone);
  if (d->epilogue == 4) {
    expect(d->bias % alignment[0] == 0, "the alignment of a row that is added");
    if (f64)
      add_row<double>(d->bias, g.n, z);
    else
      add_row<float>(d->bias, g.n, z);
  }
  self.memory->write(reinterpret_cast<uint64_t>(to), z.data(), z.size());
  return ok;
}

}  // namespace

ProductDouble& product_double() {
  static ProductDouble self;
  return self;
}

const ProductTable& product_double_table() {
  static const ProductTable table{[] { return size_t{130100}; },
                                  create,
                                  destroy,
                                  make_what,
                                  destroy_what,
                                  set_what,
                                  make_layout,
                                  destroy_layout,
                                  set_layout,
                                  make_wishes,
                                  destroy_wishes,
                                  set_wishes,
                                  find,
                                  multiply};
  return table;
}

}  // namespace gradus::fusion::test
