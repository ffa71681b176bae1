// Code for work on a device: launches of kernels that are in stock.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "devices/cuda/bind_library.h"
#include "devices/cuda/launches.h"
#include "fusion/cuda/launch.h"
#include "fusion/cuda/prelude.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_convolution.h"
#include "fusion/cuda/stock_elements.h"
#include "fusion/cuda/stock_extremum.h"
#include "fusion/cuda/stock_sort.h"
#include "ops/pointwise.h"
#include "ops/rounding.h"

namespace gradus::fusion::cuda {

namespace {

using work::Window;

constexpr int64_t most_narrow = (int64_t{1} << 31) - 1;
constexpr size_t most_words = 512;  // of a kernel's parameters
constexpr size_t fault_bytes = 16;

class Maker {
 public:
  Maker(std::shared_ptr<CudaBackend> backend, int arguments, bool wait)
      : backend_(std::move(backend)), arguments_(arguments), wait_(wait) {}

  devices::DeviceCode run(const work::Work& work) {
    std::visit([&](const auto& w) { bind(w); }, work);
    for (const Launch& l : launches_)
      if (l.words.size() > most_words) return {};
    if (!all_there_) return {.kernel = {}, .faults = {}, .later = std::move(later_)};
    auto owned = std::make_shared<const Launches>(Launches{
        backend_, std::move(launches_), std::move(products_), adds_row_, std::move(convolve_)});
    return {{run_launches, std::move(owned), scratch_}, std::move(faults_), {}};
  }

 private:
  uint32_t blocks_for(int64_t blocks) const {
    const int64_t most = blocks_each * backend_->device_code().facts().multiprocessors;
    return static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, most));
  }
  static int64_t blocks_of(int64_t items) { return (items + block_threads - 1) / block_threads; }
  // Whoever has a library's call for it has launches for other pointers as well.
  void add_library(const work::Convolution& w) {
    auto library = bind_convolution(backend_->device_code(), w);
    if (!library) return;
    for (const work::Copy& m : library->copies) add_move(m);
    convolve_ = Convolve{std::move(library->call), library->copied, std::move(launches_)};
    launches_.clear();
    scratch_ = library->scratch_bytes;
  }
  void launch(Launch l, const Source& source, int64_t blocks) {
    const auto code = backend_->stock(source, wait_);
    if (code)
      l.code = *code;
    else
      later_.push_back(source.text);
    all_there_ &= l.code != nullptr;
    l.blocks = blocks_for(blocks);
    launches_.push_back(std::move(l));
  }

  // There is no code for it.
  void refuse() { all_there_ = false; }
  void bind(const work::IndexCheck&) { refuse(); }
  void bind(const work::Spacing&) { refuse(); }
  void bind(const work::OneHot&) { refuse(); }
  void bind(const work::Nonzero&) { refuse(); }
  void bind(const work::RunningMax&) { refuse(); }
  void bind(const work::Factor&) { refuse(); }
  void bind(const work::Foreign&) { refuse(); }

  void bind(const work::Move& w) {
    scratch_ = static_cast<size_t>(w.scratch_bytes);
    for (const work::Copy& m : w.copies) add_move(m);
  }
  void add_move(const work::Copy& m) {
    const int64_t items = numel(m.shape);
    if (items == 0) return;
    Launch l;
    uint64_t value = 0;
    if (m.fills) {
      std::memcpy(&value, m.pattern.data(), size_of(m.target.dtype));
      l.add(0);
    } else {
      l.add_pointer(m.source);
    }
    l.add_pointer(m.target);
    l.add(items);
    l.words.push_back(value);
    l.add(m.shape);
    l.add(m.source.strides);
    l.add(m.target.strides);
    launch(std::move(l), copy_source(m, items > most_narrow), blocks_of(items));
  }

  void bind(const work::Index& w) {
    scratch_ = static_cast<size_t>(w.sums_bytes());
    for (const work::Copy& m : w.begin) add_move(m);
    add_indexing(w);
    for (const work::Copy& m : w.end) add_move(m);
  }
  void add_indexing(const work::Index& w) {
    if (numel(w.shape) == 0) return;
    const bool reads = w.sides.action == work::IndexAction::read;
    const bool atomic = backend_->atomics() && adds_atomically(w);
    auto serial = [&](size_t d) { return !reads && !atomic && w.serial[d]; };
    // Dimensions that threads share come first.
    std::vector<size_t> order(w.shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t parallel = static_cast<size_t>(
        std::ranges::stable_partition(order, std::not_fn(serial)).begin() - order.begin());
    auto arranged = [&](const Sizes& from) {
      Sizes to;
      for (size_t d : order) to.push_back(from[d]);
      return to;
    };
    int64_t items = 1, steps = 1;
    for (size_t i = 0; i < order.size(); ++i) (i < parallel ? items : steps) *= w.shape[order[i]];
    Launch l;
    l.add_pointer(w.sums ? static_cast<int>(Window::scratch) : w.sides.indexed,
                  w.indexed_offset * static_cast<int64_t>(size_of(w.indexed_dtype())));
    l.add_pointer(w.sides.plain, 0);
    if (w.indices.empty())
      l.add(0);
    else
      l.add_pointer(arguments_, static_cast<int64_t>(faults_.size() * fault_bytes));
    l.add(items);
    l.add(steps);
    const bool floating = is_floating(w.sides.dtype);
    l.add(floating ? std::bit_cast<int64_t>(w.sides.alpha.value)
                   : static_cast<int64_t>(w.sides.alpha));
    l.add(arranged(w.shape));
    l.add(arranged(w.indexed));
    l.add(arranged(w.plain));
    for (const work::IndexOperand& o : w.indices) {
      l.add_pointer(o.argument, 0);
      l.add(o.size);
      l.add(o.step);
      l.add(arranged(o.strides));
      faults_.push_back([op = w.op, o](int64_t value) { return work::index_error(*op, o, value); });
    }
    const IndexShape shape{static_cast<int>(order.size()), static_cast<int>(parallel),
                           std::max(items, steps) > most_narrow, atomic};
    launch(std::move(l), index_source(w, shape), blocks_of(items));
  }

  static void add_axes(Launch& l, const work::Axes& axes) {
    for (const work::Axis& a : axes) l.add(a.size);
    for (const work::Axis& a : axes) l.add(a.stride);
  }
  void bind(const work::Reduce& w) {
    if (w.outputs == 0) return;
    const int64_t chunks =
        std::max<int64_t>(1, (w.count + work::reduce_chunk - 1) / work::reduce_chunk);
    const bool one = chunks == 1;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(one ? 1 : static_cast<int>(Window::scratch), 0);
    l.add(w.outputs);
    l.add(w.count);
    l.add(chunks);
    for (const work::Axes* axes : {&w.kept, &w.reduced}) add_axes(l, *axes);
    launch(std::move(l), reduce_source(w, one), (w.outputs + 15) / 16 * chunks);
    if (one) return;
    scratch_ = static_cast<size_t>(w.outputs * chunks) * 8;
    Launch fold;
    fold.add_pointer(Window::scratch, 0);
    fold.add_pointer(1, 0);
    fold.add(w.outputs);
    fold.add(chunks);
    launch(std::move(fold), fold_source(w), blocks_of(w.outputs));
  }

  void bind(const work::Product& w) {
    work::Gemm g = w.gemm;
    if (g.batch.empty()) g.batch.push_back({1, 0, 0});
    int64_t batch = 1;
    for (const work::Gemm::Batch& b : g.batch) batch *= b.size;
    if (w.adds_row) all_there_ = false;  // unless a library has it
    if (batch * g.m * g.n == 0) return;
    if (auto library = bind_products(backend_->device_code(), w)) {
      products_ = std::move(library->calls);
      scratch_ = library->scratch_bytes;
      adds_row_ = w.adds_row;
      all_there_ = true;
      return;
    }
    if (w.adds_row) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    for (int64_t n : {batch, g.m, g.n, g.k, g.a_row, g.a_column, g.b_row, g.b_column}) l.add(n);
    for (const auto& b : g.batch) l.add(b.size);
    for (const auto& b : g.batch) l.add(b.a_stride);
    for (const auto& b : g.batch) l.add(b.b_stride);
    launch(std::move(l), product_source(g.dtype, static_cast<int>(g.batch.size())),
           batch * ((g.m + 15) / 16) * ((g.n + 15) / 16));
  }

  void bind(const work::Triangle& w) {
    const int64_t items = w.x.numel(), rank = w.x.rank();
    if (items == 0) return;
    const int64_t rows = w.x.shape[rank - 2], columns = w.x.shape[rank - 1];
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(items);
    l.add(rows);
    l.add(columns);
    l.add(std::clamp(w.diagonal, -rows - 1, columns + 1));
    l.add(w.x.shape);
    l.add(w.x.strides);
    launch(std::move(l), triangle_source(w, items > most_narrow), blocks_of(items));
  }

  void bind(const work::Scan& w) {
    if (w.next == work::ScanStep::log_sum_exp) return refuse();
    const Layout &a = w.in[0], &b = w.in[w.in.size() > 1 ? 1 : 0];
    const auto dim = static_cast<size_t>(w.dim);
    int64_t lines = 1, inner = 1;
    Sizes size{1}, a_of{0}, b_of{0};
    for (size_t d = 0; d < a.shape.size(); ++d) {
      if (d == dim) continue;
      size.push_back(a.shape[d]);
      a_of.push_back(a.strides[d]);
      b_of.push_back(b.strides[d]);
      lines *= a.shape[d];
      if (d > dim) inner *= a.shape[d];
    }
    const bool scalar = a.shape.empty();
    if (a.numel() == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(w.in.size() > 1 ? 1 : 0, 0);
    l.add_pointer(static_cast<int>(w.in.size()), 0);
    l.add(lines);
    l.add(scalar ? 1 : a.shape[dim]);
    l.add(inner);
    l.add(scalar ? 0 : a.strides[dim]);
    l.add(scalar ? 0 : b.strides[dim]);
    l.add(size);
    l.add(a_of);
    l.add(b_of);
    launch(std::move(l), scan_source(w, static_cast<int>(size.size())), blocks_of(lines));
  }

  void bind(const work::Range& w) {
    if (w.count == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    for (int64_t n : {w.count, w.start, w.step, std::bit_cast<int64_t>(w.first.value),
                      std::bit_cast<int64_t>(w.by.value)})
      l.add(n);
    launch(std::move(l), range_source(w, w.count > most_narrow), blocks_of(w.count));
  }

  // Element by element means nests elsewhere; alone stands what may find a fault.
  void bind(const work::Pointwise& w) {
    if (!w.call.op->pointwise().refuses_zero_divisors || is_floating(w.out)) return refuse();
    const int64_t items = numel(w.shape);
    if (items == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    l.add_pointer(arguments_, 0);
    l.add(items);
    l.add(w.shape);
    for (const work::PointwiseOperand& o : w.operands) l.add(o.strides);
    faults_.push_back([op = w.call.op](int64_t) { return ops::zero_divisor_error(*op); });
    launch(std::move(l), division_source(w, items > most_narrow), blocks_of(items));
  }

  void bind(const work::RandomBits& w) {
    if (w.count == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(w.count);
    l.add(w.key_stride);
    const int64_t items = (w.count + 3) / 4;
    launch(std::move(l), random_source(items > most_narrow), blocks_of(items));
  }

  void bind(const work::Solve& w) {
    const Layout &a = w.a, &b = w.b;
    if (b.numel() == 0) return;
    const size_t stacked = b.shape.size() - 2;
    const int64_t n = b.shape[stacked], m = b.shape[stacked + 1], count = b.numel() / (n * m);
    Sizes size, a_of, b_of;
    for (size_t d = 0; d < stacked; ++d) {
      size.push_back(b.shape[d]);
      a_of.push_back(a.strides[d]);
      b_of.push_back(b.strides[d]);
    }
    if (stacked == 0) size = {1}, a_of = b_of = {0};
    Launch l;
    for (int argument : {0, 1, 2, static_cast<int>(Window::scratch)}) l.add_pointer(argument, 0);
    for (int64_t k : {count, n, m}) l.add(k);
    l.add(a.strides[stacked + (w.transpose ? 1 : 0)]);
    l.add(a.strides[stacked + (w.transpose ? 0 : 1)]);
    l.add(b.strides[stacked]);
    l.add(b.strides[stacked + 1]);
    for (const Sizes* list : {&size, &a_of, &b_of}) l.add(*list);
    scratch_ = static_cast<size_t>(b.numel()) * sizeof(double);
    launch(std::move(l), solve_source(w, static_cast<int>(size.size()), count * m > most_narrow),
           blocks_of(count * m));
  }

  void bind(const work::Extremum& w) {
    Launch l;
    l.add_pointer(0, 0);
    if (w.value < 0)
      l.add(0);
    else
      l.add_pointer(1 + w.value, 0);
    l.add_pointer(1 + w.index, 0);
    l.add(w.outputs);
    l.add(w.count);
    for (const work::Axes* axes : {&w.kept, &w.reduced}) add_axes(l, *axes);
    launch(std::move(l), extremum_source(w), (w.outputs + 15) / 16);
  }

  // Runs of one element, of two, of four, .. by turns from one part of the scratch memory into the
  // other; the last ones are the results.
  void bind(const work::Sort& w) {
    constexpr int64_t place_bytes = 4;
    if (w.rows == 0) return;
    Sizes size = w.x.shape, strides = w.x.strides;
    const int64_t length = size.back(), x_step = strides.back(), items = w.rows * length;
    if (length > most_narrow) all_there_ = false;
    size.pop_back();
    strides.pop_back();
    if (size.empty()) size = {1}, strides = {0};
    const Source source = sort_source(w, static_cast<int>(size.size()), items > most_narrow);
    for (int64_t width = 1, pass = 0; width == 1 || width < length; width *= 2, ++pass) {
      const bool last = 2 * width >= length;
      Launch l;
      l.add_pointer(0, 0);
      for (const auto& [there, part] : {std::pair(pass > 0, 1 - pass % 2), {!last, pass % 2}})
        if (there)
          l.add_pointer(Window::scratch, part * items * place_bytes);
        else
          l.add(0);
      l.add_pointer(1, 0);
      l.add_pointer(2, 0);
      for (int64_t n : {items, length, width, w.kept, w.inner, w.outer_stride, w.step, x_step})
        l.add(n);
      l.add(size);
      l.add(strides);
      launch(std::move(l), source, blocks_of(items));
      if (!last) scratch_ = static_cast<size_t>(2 * items * place_bytes);
    }
  }

  static void add_axis(Launch& l, const work::ConvAxis& a) {
    for (int64_t n : {a.image, a.windows, a.kernel, a.stride, a.padding, a.dilation}) l.add(n);
  }
  void bind(const work::MaxPool& w) {
    const int64_t items = w.planes * w.windows;
    if (items == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    l.add(items);
    l.add(w.channels);
    add_tensor(l, w.x);
    for (const work::ConvAxis& axis : w.axes) add_axis(l, axis);
    launch(std::move(l), max_pool_source(w, items > most_narrow), blocks_of(items));
  }
  void bind(const work::Columns& w) {
    const work::ConvAxis &high = w.axes[1], &wide = w.axes[2];
    const int64_t each = w.folds ? high.image * wide.image
                                 : high.kernel * wide.kernel * high.windows * wide.windows,
                  items = w.batch * w.channels * each;
    if (items == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(items);
    l.add(w.channels);
    if (w.folds) {
      l.add(w.columns);
      l.add(0);
    } else {
      for (int64_t n :
           {w.image.batch_stride, w.image.channel_stride, w.image.strides[1], w.image.strides[2]})
        l.add(n);
    }
    for (const work::ConvAxis* axis : {&high, &wide}) add_axis(l, *axis);
    launch(std::move(l), columns_source(w, items > most_narrow), blocks_of(items));
  }

  using Direction = work::Direction;
  static void add_tensor(Launch& l, const work::ConvTensor& t) {
    l.add(t.batch_stride);
    l.add(t.channel_stride);
    l.add(t.strides);
  }
  static void add_phase(Launch& l, const work::Phase& phase) {
    using Axis = work::PhaseAxis;
    for (int64_t Axis::*field :
         {&Axis::first, &Axis::step, &Axis::count, &Axis::tap_first, &Axis::tap_step, &Axis::taps,
          &Axis::offset, &Axis::move, &Axis::tap_move, &Axis::source_size})
      for (const Axis& axis : phase.axes) l.add(axis.*field);
  }
  void bind(const work::Convolution& w) {
    add_library(w);
    if (w.direction == Direction::kernel) return add_weight(w);
    const bool forward = w.direction == Direction::result;
    const Layout& weights = w.second;
    const int64_t outputs = weights.shape[0] / w.groups;
    const int64_t rows = forward ? outputs : weights.shape[1],
                  channels = forward ? weights.shape[1] : outputs;
    const work::ConvTensor source(w.first), target(w.result), kernel(weights);
    for (const work::Phase& phase :
         forward ? std::vector{work::window_phase(w.axes)} : work::image_phases(w.axes)) {
      const int64_t tiles = (rows + 15) / 16 * ((phase.positions() + 15) / 16);
      if (w.first.shape[0] * w.groups * tiles == 0) continue;
      Launch l;
      for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
      for (int64_t n : {w.first.shape[0], w.groups, rows, channels}) l.add(n);
      add_tensor(l, source);
      add_tensor(l, target);
      l.add(outputs * weights.strides[0]);
      l.add(weights.strides[forward ? 0 : 1]);
      l.add(weights.strides[forward ? 1 : 0]);
      l.add(kernel.strides);
      add_phase(l, phase);
      launch(std::move(l), gather_source(w.first.dtype), w.first.shape[0] * w.groups * tiles);
    }
  }
  void add_weight(const work::Convolution& w) {
    const Layout &x = w.first, &dy = w.second;
    const work::Phase phase = work::window_phase(w.axes);
    const int64_t rows = dy.shape[1] / w.groups, channels = x.shape[1] / w.groups;
    const int64_t tiles = (rows + 15) / 16 * ((channels * phase.taps() + 15) / 16);
    if (w.result.numel() == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    const work::KernelSums sums = work::kernel_sums(w);
    for (int64_t n : {x.shape[0], w.groups, rows, channels, sums.parts, sums.width}) l.add(n);
    add_tensor(l, work::ConvTensor(x));
    add_tensor(l, work::ConvTensor(dy));
    add_phase(l, phase);
    launch(std::move(l), weight_source(x.dtype), w.groups * tiles);
  }

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

devices::DeviceCode CudaBackend::make(const work::Work& work, int arguments, bool wait) {
  return Maker(shared_from_this(), arguments, wait).run(work);
}

}  // namespace gradus::fusion::cuda
