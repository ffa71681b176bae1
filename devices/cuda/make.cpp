// Code for work on a device: launches of kernels that are in stock.
#include <algorithm>

#include "devices/cuda/bind_library.h"
#include "devices/cuda/collectives.h"
#include "devices/cuda/launches.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_convolution.h"
#include "fusion/cuda/stock_elements.h"
#include "fusion/cuda/stock_extremum.h"
#include "fusion/cuda/stock_sort.h"
#include "gradus/pointwise.h"
#include "kernels/collective.h"
#include "ops/rounding.h"

namespace gradus::fusion::cuda {

namespace {

constexpr size_t most_words = 512;  // of a kernel's parameters

class Maker {
 public:
  Maker(std::shared_ptr<CudaBackend> backend, int arguments, bool wait)
      : backend_(std::move(backend)), arguments_(arguments), wait_(wait) {}

  devices::DeviceCode run(const work::Work& work) {
    std::visit([&](const auto& w) { bind(w); }, work);
    for (const Launch& l : launches_)
      if (l.arguments.words.size() > most_words) return {};
    if (!all_there_) return {.kernel = {}, .faults = {}, .later = std::move(later_)};
    if (const auto* call = std::get_if<work::Collective>(&work))
      return make_collective(backend_, *call, std::move(launches_), scratch_);
    auto owned = std::make_shared<const Launches>(Launches{
        backend_, std::move(launches_), std::move(products_), adds_row_, std::move(convolve_)});
    return {{run_launches, std::move(owned), scratch_}, std::move(faults_), {}};
  }

 private:
  uint32_t blocks_for(int64_t blocks) const {
    const int64_t most = blocks_each * backend_->device_code().facts().multiprocessors;
    return static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, most));
  }
  // Whoever has a library's call for it has launches for other pointers as well.
  void add_library(const work::Convolution& w) {
    auto library = bind_convolution(backend_->device_code(), w);
    if (!library) return;
    for (const work::Copy& m : library->copies) launch(copy_kernel(m));
    convolve_ = Convolve{std::move(library->call), library->copied, std::move(launches_)};
    launches_.clear();
    scratch_ = library->scratch_bytes;
  }
  // Whether there is anything to do.
  bool launch(StockKernel kernel, bool wait) {
    if (kernel.launches.empty()) return false;
    const auto code = backend_->stock(kernel.source, wait);
    if (!code) later_.push_back(kernel.source.text);
    all_there_ &= code && *code;
    for (StockKernel::Launch& l : kernel.launches)
      launches_.push_back({code.value_or(nullptr), blocks_for(l.blocks), std::move(l.arguments)});
    return true;
  }
  bool launch(StockKernel kernel) { return launch(std::move(kernel), wait_); }

  // There is no code for it.
  void refuse() { all_there_ = false; }
  void bind(const work::IndexCheck&) { refuse(); }
  void bind(const work::Spacing&) { refuse(); }
  void bind(const work::OneHot&) { refuse(); }
  void bind(const work::Nonzero&) { refuse(); }
  void bind(const work::RunningMax&) { refuse(); }
  void bind(const work::Factor&) { refuse(); }
  void bind(const work::Fourier&) { refuse(); }
  void bind(const work::CollectiveEnd&) { refuse(); }
  void bind(const work::OwnRank&) { refuse(); }
  void bind(const work::OwnBlock&) { refuse(); }
  void bind(const work::Loops&) { refuse(); }  // CudaKernels has code for nests
  void bind(const work::Foreign&) { refuse(); }

  // Ranks have to choose alike. So code does not depend on what is compiled already, nor on whether
  // an operand happens to lie in order.
  void bind(const work::Collective& w) {
    constexpr bool any_order = true;
    if (!backend_->device_code().exchange_table() ||
        !nccl_makes(w.kind, w.reducer, w.x.dtype, any_order))
      return refuse();
    if (!kernels::copies_operand(w)) return;
    work::Move move;
    const Layout ordered(w.x.dtype, w.x.shape);
    move.copy(w.x.shape, {0, w.x.dtype, w.x.strides, 0},
              {work::Window::scratch, w.x.dtype, ordered.strides, 0});
    scratch_ = static_cast<size_t>(w.x.numel()) * size_of(w.x.dtype);
    for (const work::Copy& m : move.copies) launch(copy_kernel(m), true);
    if (!all_there_)
      throw ResourceError("{}: no kernel puts the operand of a call of group '{}' in order",
                          to_string(backend_->device()), w.group);
  }

  void bind(const work::Move& w) {
    scratch_ = static_cast<size_t>(w.scratch_bytes);
    for (const work::Copy& m : w.copies) launch(copy_kernel(m));
  }

  void bind(const work::Index& w) {
    scratch_ = static_cast<size_t>(w.sums_bytes());
    for (const work::Copy& m : w.begin) launch(copy_kernel(m));
    if (launch(index_kernel(w, arguments_, backend_->atomics())))
      for (const work::IndexOperand& o : w.indices)
        faults_.push_back(
            [op = w.op, o](int64_t value) { return work::index_error(*op, o, value); });
    for (const work::Copy& m : w.end) launch(copy_kernel(m));
  }

  void bind(const work::Reduce& w) {
    scratch_ = static_cast<size_t>(partial_bytes(w));
    launch(reduce_kernel(w));
    launch(fold_kernel(w));
  }

  void bind(const work::Product& w) {
    int64_t elements = w.gemm.m * w.gemm.n;
    for (const work::Gemm::Batch& b : w.gemm.batch) elements *= b.size;
    if (w.adds_row) refuse();  // unless a library has it
    if (elements == 0) return;
    if (auto library = bind_products(backend_->device_code(), w)) {
      products_ = std::move(library->calls);
      scratch_ = library->scratch_bytes;
      adds_row_ = w.adds_row;
      all_there_ = true;
    } else if (!w.adds_row) {
      launch(product_kernel(w.gemm));
    }
  }

  void bind(const work::Scan& w) {
    if (w.next == work::ScanStep::log_sum_exp || w.next == work::ScanStep::cut_recurrence)
      return refuse();
    launch(scan_kernel(w));
  }

  // Element by element means nests elsewhere; alone stands what may find a fault.
  void bind(const work::Pointwise& w) {
    if (!w.call.op->pointwise().refuses_zero_divisors || is_floating(w.out)) return refuse();
    if (launch(division_kernel(w, arguments_)))
      faults_.push_back([op = w.call.op](int64_t) { return ops::zero_divisor_error(*op); });
  }

  void bind(const work::Solve& w) {
    if (w.general) return refuse();
    scratch_ = static_cast<size_t>(w.b.numel()) * sizeof(double);
    launch(solve_kernel(w));
  }

  void bind(const work::Sort& w) {
    if (w.rows > 0 && w.x.shape.back() > INT32_MAX) return refuse();  // places have 32 bits
    scratch_ = static_cast<size_t>(sort_bytes(w));
    launch(sort_kernel(w));
  }

  void bind(const work::Convolution& w) {
    add_library(w);
    for (StockKernel& kernel : convolution_kernels(w)) launch(std::move(kernel));
  }

  void bind(const work::Triangle& w) { launch(triangle_kernel(w)); }
  void bind(const work::Range& w) { launch(range_kernel(w)); }
  void bind(const work::RandomBits& w) { launch(random_kernel(w)); }
  void bind(const work::Extremum& w) { launch(extremum_kernel(w)); }
  void bind(const work::MaxPool& w) { launch(max_pool_kernel(w)); }
  void bind(const work::Columns& w) { launch(columns_kernel(w)); }

  const std::shared_ptr<CudaBackend> backend_;
  const int arguments_;
  const bool wait_;
  bool all_there_ = true;
  std::vector<std::string> later_;
  size_t scratch_ = 0;
  std::vector<Launch> launches_;
  std::vector<Multiply> products_;
  bool adds_row_ = false;
  std::optional<Convolve> convolve_;
  std::vector<devices::DeviceCode::Fault> faults_;
};

}  // namespace

devices::DeviceCode make_code(std::shared_ptr<CudaBackend> backend, const work::Work& work,
                              int arguments, bool wait) {
  return Maker(std::move(backend), arguments, wait).run(work);
}

}  // namespace gradus::fusion::cuda
