// Code for what single instructions do: launches of kernels that are in stock.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "fusion/cuda/bind_library.h"
#include "fusion/cuda/launches.h"
#include "fusion/cuda/prelude.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_convolution.h"
#include "fusion/cuda/stock_elements.h"
#include "fusion/cuda/stock_extremum.h"
#include "fusion/cuda/stock_sort.h"
#include "ops/rounding.h"

namespace gradus::fusion::cuda {

namespace {

using ops::Window;

constexpr int64_t blocks_each = 32;  // of a multiprocessor, at most
constexpr int64_t most_narrow = (int64_t{1} << 31) - 1;
constexpr size_t most_words = 512;  // of a kernel's parameters
constexpr size_t fault_bytes = 16;

class Binder {
 public:
  Binder(std::shared_ptr<CudaAccelerator> accelerator, int arguments, bool wait)
      : accelerator_(std::move(accelerator)), arguments_(arguments), wait_(wait) {}

  DeviceCode run(const ops::DeviceForm& form) {
    scratch_ = form.scratch_bytes;
    std::visit([&](const auto& what) { bind(what); }, form.what);
    for (const Launch& l : launches_)
      if (l.words.size() > most_words) return {};
    if (!all_there_) return {.kernel = {}, .faults = {}, .later = std::move(later_)};
    auto owned = std::make_shared<const Launches>(Launches{
        accelerator_, std::move(launches_), std::move(products_), adds_row_, std::move(convolve_)});
    return {{run_launches, std::move(owned), scratch_}, std::move(faults_), {}};
  }

 private:
  uint32_t blocks_for(int64_t blocks) const {
    const int64_t most = blocks_each * accelerator_->device_code().facts().multiprocessors;
    return static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, most));
  }
  static int64_t blocks_of(int64_t items) { return (items + block_threads - 1) / block_threads; }
  // Whoever has a library's call for it has launches for other pointers as well.
  void add_library(const ops::DeviceConvolution& form) {
    scratch_ = 0;
    auto library = bind_convolution(accelerator_->device_code(), form);
    if (!library) return;
    for (const ops::DeviceMove& m : library->copies) add_move(m);
    convolve_ = Convolve{std::move(library->call), library->copied, std::move(launches_)};
    launches_.clear();
    scratch_ = library->scratch_bytes;
  }
  void launch(Launch l, const Source& source, int64_t blocks) {
    const auto code = accelerator_->stock(source, wait_);
    if (code)
      l.code = *code;
    else
      later_.push_back(source.text);
    all_there_ &= l.code != nullptr;
    l.blocks = blocks_for(blocks);
    launches_.push_back(std::move(l));
  }

  void bind(const ops::DeviceMoves& form) {
    for (const ops::DeviceMove& m : form.moves) add_move(m);
  }
  void add_move(const ops::DeviceMove& m) {
    const int64_t items = numel(m.shape);
    if (items == 0) return;
    Launch l;
    uint64_t value = 0;
    if (m.fills) {
      std::memcpy(&value, m.pattern.bytes, size_of(m.target.dtype));
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

  void bind(const ops::DeviceIndexing& form) {
    for (const ops::DeviceMove& m : form.begin) add_move(m);
    add_indexing(form);
    for (const ops::DeviceMove& m : form.end) add_move(m);
  }
  void add_indexing(const ops::DeviceIndexing& form) {
    if (numel(form.shape) == 0) return;
    const bool reads = form.sides.action == ops::IndexAction::read;
    const bool atomic = accelerator_->atomics() && adds_atomically(form);
    auto serial = [&](size_t d) { return !reads && !atomic && form.serial[d]; };
    // Dimensions that threads share come first.
    std::vector<size_t> order(form.shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t parallel = static_cast<size_t>(
        std::ranges::stable_partition(order, std::not_fn(serial)).begin() - order.begin());
    auto arranged = [&](const Sizes& from) {
      Sizes to;
      for (size_t d : order) to.push_back(from[d]);
      return to;
    };
    int64_t items = 1, steps = 1;
    for (size_t i = 0; i < order.size(); ++i)
      (i < parallel ? items : steps) *= form.shape[order[i]];
    Launch l;
    l.add_pointer(form.sums ? static_cast<int>(Window::scratch) : form.sides.indexed,
                  static_cast<int64_t>(form.sums.value_or(0)) +
                      form.indexed_offset * static_cast<int64_t>(size_of(form.indexed_dtype())));
    l.add_pointer(form.sides.plain, 0);
    if (form.indices.empty())
      l.add(0);
    else
      l.add_pointer(arguments_, static_cast<int64_t>(faults_.size() * fault_bytes));
    l.add(items);
    l.add(steps);
    const bool floating = is_floating(form.sides.dtype);
    l.add(floating ? std::bit_cast<int64_t>(form.sides.alpha)
                   : static_cast<int64_t>(form.sides.alpha));
    l.add(arranged(form.shape));
    l.add(arranged(form.indexed));
    l.add(arranged(form.plain));
    for (const ops::IndexOperand& o : form.indices) {
      l.add_pointer(o.argument, 0);
      l.add(o.size);
      l.add(o.step);
      l.add(arranged(o.strides));
      faults_.push_back(
          [op = form.op, o](int64_t value) { return ops::index_error(*op, o, value); });
    }
    const IndexShape shape{static_cast<int>(order.size()), static_cast<int>(parallel),
                           std::max(items, steps) > most_narrow, atomic};
    launch(std::move(l), index_source(form, shape), blocks_of(items));
  }

  static void add_axes(Launch& l, const ops::Axes& axes) {
    for (const ops::Axis& a : axes) l.add(a.size);
    for (const ops::Axis& a : axes) l.add(a.stride);
  }
  void bind(const ops::DeviceReduction& form) {
    if (form.outputs == 0) return;
    const int64_t chunks =
        std::max<int64_t>(1, (form.count + ops::reduce_chunk - 1) / ops::reduce_chunk);
    const bool one = chunks == 1;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(one ? 1 : static_cast<int>(Window::scratch), 0);
    l.add(form.outputs);
    l.add(form.count);
    l.add(chunks);
    for (const ops::Axes* axes : {&form.kept, &form.reduced}) add_axes(l, *axes);
    launch(std::move(l), reduce_source(form, one), (form.outputs + 15) / 16 * chunks);
    if (one) return;
    scratch_ = static_cast<size_t>(form.outputs * chunks) * 8;
    Launch fold;
    fold.add_pointer(Window::scratch, 0);
    fold.add_pointer(1, 0);
    fold.add(form.outputs);
    fold.add(chunks);
    launch(std::move(fold), fold_source(form), blocks_of(form.outputs));
  }

  void bind(const ops::DeviceProduct& form) {
    ops::Gemm g = form.gemm;
    if (g.batch.empty()) g.batch.push_back({1, 0, 0});
    int64_t batch = 1;
    for (const ops::Gemm::Batch& b : g.batch) batch *= b.size;
    if (form.adds_row) all_there_ = false;  // unless a library has it
    if (batch * g.m * g.n == 0) return;
    if (auto library = bind_products(accelerator_->device_code(), form)) {
      products_ = std::move(library->calls);
      scratch_ = library->scratch_bytes;
      adds_row_ = form.adds_row;
      all_there_ = true;
      return;
    }
    if (form.adds_row) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    for (int64_t n : {batch, g.m, g.n, g.k, g.a_row, g.a_column, g.b_row, g.b_column}) l.add(n);
    for (const auto& b : g.batch) l.add(b.size);
    for (const auto& b : g.batch) l.add(b.a_stride);
    for (const auto& b : g.batch) l.add(b.b_stride);
    launch(std::move(l), product_source(g.dtype, static_cast<int>(g.batch.size())),
           batch * ((g.m + 15) / 16) * ((g.n + 15) / 16));
  }

  void bind(const ops::DeviceTriangle& form) {
    const int64_t items = form.x.numel(), rank = form.x.rank();
    if (items == 0) return;
    const int64_t rows = form.x.shape[rank - 2], columns = form.x.shape[rank - 1];
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(items);
    l.add(rows);
    l.add(columns);
    l.add(std::clamp(form.diagonal, -rows - 1, columns + 1));
    l.add(form.x.shape);
    l.add(form.x.strides);
    launch(std::move(l), triangle_source(form, items > most_narrow), blocks_of(items));
  }

  void bind(const ops::DeviceScan& form) {
    const Layout &a = form.in[0], &b = form.in[form.in.size() > 1 ? 1 : 0];
    const auto dim = static_cast<size_t>(form.dim);
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
    l.add_pointer(form.in.size() > 1 ? 1 : 0, 0);
    l.add_pointer(static_cast<int>(form.in.size()), 0);
    l.add(lines);
    l.add(scalar ? 1 : a.shape[dim]);
    l.add(inner);
    l.add(scalar ? 0 : a.strides[dim]);
    l.add(scalar ? 0 : b.strides[dim]);
    l.add(size);
    l.add(a_of);
    l.add(b_of);
    launch(std::move(l), scan_source(form, static_cast<int>(size.size())), blocks_of(lines));
  }

  void bind(const ops::DeviceRange& form) {
    if (form.count == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    for (int64_t n : {form.count, form.start, form.step, std::bit_cast<int64_t>(form.first),
                      std::bit_cast<int64_t>(form.by)})
      l.add(n);
    launch(std::move(l), range_source(form, form.count > most_narrow), blocks_of(form.count));
  }

  void bind(const ops::DeviceDivision& form) {
    const int64_t items = numel(form.shape);
    if (items == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    l.add_pointer(arguments_, 0);
    l.add(items);
    l.add(form.shape);
    for (const Sizes& strides : form.strides) l.add(strides);
    faults_.push_back([op = form.op](int64_t) { return ops::zero_divisor_error(*op); });
    launch(std::move(l), division_source(form, items > most_narrow), blocks_of(items));
  }

  void bind(const ops::DeviceRandomBits& form) {
    if (form.count == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(form.count);
    l.add(form.key_stride);
    const int64_t items = (form.count + 3) / 4;
    launch(std::move(l), random_source(items > most_narrow), blocks_of(items));
  }

  void bind(const ops::DeviceSolve& form) {
    const Layout &a = form.a, &b = form.b;
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
    l.add(a.strides[stacked + (form.transpose ? 1 : 0)]);
    l.add(a.strides[stacked + (form.transpose ? 0 : 1)]);
    l.add(b.strides[stacked]);
    l.add(b.strides[stacked + 1]);
    for (const Sizes* list : {&size, &a_of, &b_of}) l.add(*list);
    scratch_ = static_cast<size_t>(b.numel()) * sizeof(double);
    launch(std::move(l), solve_source(form, static_cast<int>(size.size()), count * m > most_narrow),
           blocks_of(count * m));
  }

  void bind(const ops::DeviceExtremum& form) {
    Launch l;
    l.add_pointer(0, 0);
    if (form.value < 0)
      l.add(0);
    else
      l.add_pointer(1 + form.value, 0);
    l.add_pointer(1 + form.index, 0);
    l.add(form.outputs);
    l.add(form.count);
    for (const ops::Axes* axes : {&form.kept, &form.reduced}) add_axes(l, *axes);
    launch(std::move(l), extremum_source(form), (form.outputs + 15) / 16);
  }

  // Runs of one element, of two, of four, .. by turns from one part of the scratch memory into the
  // other; the last ones are the results.
  void bind(const ops::DeviceSort& form) {
    constexpr int64_t place_bytes = 4;
    scratch_ = 0;
    if (form.rows == 0) return;
    Sizes size = form.x.shape, strides = form.x.strides;
    const int64_t length = size.back(), x_step = strides.back(), items = form.rows * length;
    if (length > most_narrow) all_there_ = false;
    size.pop_back();
    strides.pop_back();
    if (size.empty()) size = {1}, strides = {0};
    const Source source = sort_source(form, static_cast<int>(size.size()), items > most_narrow);
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
      for (int64_t n :
           {items, length, width, form.kept, form.inner, form.outer_stride, form.step, x_step})
        l.add(n);
      l.add(size);
      l.add(strides);
      launch(std::move(l), source, blocks_of(items));
      if (!last) scratch_ = static_cast<size_t>(2 * items * place_bytes);
    }
  }

  static void add_axis(Launch& l, const ops::ConvAxis& a) {
    for (int64_t n : {a.image, a.windows, a.kernel, a.stride, a.padding, a.dilation}) l.add(n);
  }
  void bind(const ops::DeviceMaxPool& form) {
    const int64_t items = form.planes * form.windows;
    if (items == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    l.add(items);
    l.add(form.channels);
    add_tensor(l, form.x);
    for (const ops::ConvAxis& axis : form.axes) add_axis(l, axis);
    launch(std::move(l), max_pool_source(form, items > most_narrow), blocks_of(items));
  }
  void bind(const ops::DeviceColumns& form) {
    const ops::ConvAxis &h = form.axes[1], &w = form.axes[2];
    const int64_t each =
                      form.folds ? h.image * w.image : h.kernel * w.kernel * h.windows * w.windows,
                  items = form.batch * form.channels * each;
    if (items == 0) return;
    Launch l;
    l.add_pointer(0, 0);
    l.add_pointer(1, 0);
    l.add(items);
    l.add(form.channels);
    if (form.folds) {
      l.add(form.columns);
      l.add(0);
    } else {
      for (int64_t n : {form.image.batch_stride, form.image.channel_stride, form.image.strides[1],
                        form.image.strides[2]})
        l.add(n);
    }
    for (const ops::ConvAxis* axis : {&h, &w}) add_axis(l, *axis);
    launch(std::move(l), columns_source(form, items > most_narrow), blocks_of(items));
  }

  using Direction = ops::DeviceConvolution::Direction;
  static void add_tensor(Launch& l, const ops::ConvTensor& t) {
    l.add(t.batch_stride);
    l.add(t.channel_stride);
    l.add(t.strides);
  }
  static void add_phase(Launch& l, const ops::Phase& phase) {
    using Axis = ops::PhaseAxis;
    for (int64_t Axis::*field :
         {&Axis::first, &Axis::step, &Axis::count, &Axis::tap_first, &Axis::tap_step, &Axis::taps,
          &Axis::offset, &Axis::move, &Axis::tap_move, &Axis::source_size})
      for (const Axis& axis : phase.axes) l.add(axis.*field);
  }
  void bind(const ops::DeviceConvolution& form) {
    add_library(form);
    if (form.direction == Direction::kernel) return add_weight(form);
    const bool forward = form.direction == Direction::result;
    const Layout& w = form.second;
    const int64_t outputs = w.shape[0] / form.groups;
    const int64_t rows = forward ? outputs : w.shape[1], channels = forward ? w.shape[1] : outputs;
    const ops::ConvTensor source(form.first), target(form.result), kernel(w);
    for (const ops::Phase& phase :
         forward ? std::vector{ops::window_phase(form.axes)} : ops::image_phases(form.axes)) {
      const int64_t tiles = (rows + 15) / 16 * ((phase.positions() + 15) / 16);
      if (form.first.shape[0] * form.groups * tiles == 0) continue;
      Launch l;
      for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
      for (int64_t n : {form.first.shape[0], form.groups, rows, channels}) l.add(n);
      add_tensor(l, source);
      add_tensor(l, target);
      l.add(outputs * w.strides[0]);
      l.add(w.strides[forward ? 0 : 1]);
      l.add(w.strides[forward ? 1 : 0]);
      l.add(kernel.strides);
      add_phase(l, phase);
      launch(std::move(l), gather_source(form.first.dtype),
             form.first.shape[0] * form.groups * tiles);
    }
  }
  void add_weight(const ops::DeviceConvolution& form) {
    const Layout &x = form.first, &dy = form.second;
    const ops::Phase phase = ops::window_phase(form.axes);
    const int64_t rows = dy.shape[1] / form.groups, channels = x.shape[1] / form.groups;
    const int64_t tiles = (rows + 15) / 16 * ((channels * phase.taps() + 15) / 16);
    if (form.result.numel() == 0) return;
    Launch l;
    for (int argument : {0, 1, 2}) l.add_pointer(argument, 0);
    for (int64_t n : {x.shape[0], form.groups, rows, channels, form.parts, form.width}) l.add(n);
    add_tensor(l, ops::ConvTensor(x));
    add_tensor(l, ops::ConvTensor(dy));
    add_phase(l, phase);
    launch(std::move(l), weight_source(x.dtype), form.groups * tiles);
  }

  const std::shared_ptr<CudaAccelerator> accelerator_;
  const int arguments_;
  const bool wait_;
  bool all_there_ = true;
  std::vector<std::string> later_;
  size_t scratch_ = 0;
  std::vector<Launch> launches_;
  std::vector<Multiply> products_;
  bool adds_row_ = false;
  std::optional<Convolve> convolve_;
  std::vector<DeviceCode::Fault> faults_;
};

}  // namespace

DeviceCode CudaAccelerator::bind(const ops::DeviceForm& form, int arguments, bool wait) {
  return Binder(shared_from_this(), arguments, wait).run(form);
}

}  // namespace gradus::fusion::cuda
