#include "kernels/reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gradus/dtype.h"
#include "kernels/cursor.h"
#include "kernels/make.h"
#include "kernels/reduce_loops.h"
#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t tile_bytes = 1024;        // accumulators of one lane in a tile of columns
constexpr int64_t task_elements = 1 << 16;  // what one worker takes at a time, about
constexpr int64_t block_chunks = task_elements / reduce_chunk;  // a power of two
constexpr int64_t few_units = 16;  // fewer than these, and the reduced space is split
constexpr int max_levels = 54;     // of the tree over 2^63 / 1024 chunks

// A unit of work is one output (by rows), or up to tile_bytes of neighbouring outputs along the
// innermost kept axis (by columns).
struct Plan : Reduce {
  const ReduceLoops* loops = nullptr;
  DType tile_dtype = DType::f32;
  bool by_columns = false;
  int64_t tile = 1;   // outputs in a unit, the last one along the axis may have fewer
  int64_t tiles = 1;  // units along the innermost kept axis
  int64_t units = 1;
  int64_t blocks = 1;  // parts of the reduced space, of block_chunks chunks each
  bool direct = true;  // elements are stored in the accumulator's type

  int64_t chunks() const { return (count + reduce_chunk - 1) / reduce_chunk; }
};

// Step 3 of the order: partials of `width` neighbouring outputs at once.
class Counter {
 public:
  Counter(const ReduceLoops& loops, int64_t width) : loops_(loops), width_(width) {}
  // Room for the next partial.
  std::byte* next() { return levels_[height_]; }
  void push() {
    ++height_;
    for (uint64_t n = ++pushed_; n % 2 == 0; n /= 2) merge();
  }
  const std::byte* finish() {
    while (height_ > 1) merge();
    return levels_[0];
  }

 private:
  void merge() {
    loops_.combine(levels_[height_ - 2], levels_[height_ - 1], width_);
    --height_;
  }
  const ReduceLoops& loops_;
  int64_t width_;
  uint64_t pushed_ = 0;
  int height_ = 0;
  alignas(64) std::byte levels_[max_levels][tile_bytes];
};

const std::byte* element(const Plan& p, const std::byte* x, int64_t offset) {
  return x + offset * static_cast<int64_t>(size_of(p.in));
}

// One chunk's elements as a contiguous run of the accumulator's type.
const void* gather_chunk(const Plan& p, const std::byte* x, Cursor& at, int64_t n,
                         std::byte* buffer) {
  bool as_it_is = p.direct && p.reduced.back().stride == 1 && at.run() >= n;
  const void* source = as_it_is ? element(p, x, at.offset()) : buffer;
  for (int64_t done = 0; done < n;) {
    int64_t m = std::min(n - done, at.run());
    if (!as_it_is)
      load_tile(p.in, p.tile_dtype, element(p, x, at.offset()), p.reduced.back().stride, m,
                buffer + done * static_cast<int64_t>(p.loops->size));
    at.advance(m);
    done += m;
  }
  return source;
}

struct Range {
  int64_t first, last;
};
// Block b of the reduced space.
Range block_range(const Plan& p, int64_t b) {
  if (p.blocks == 1) return {0, p.count};
  constexpr int64_t block = block_chunks * reduce_chunk;
  return {b * block, std::min(p.count, (b + 1) * block)};
}

// The node of the tree over block b, for one output.
void reduce_row(const Plan& p, const std::byte* x, int64_t b, std::byte* result) {
  alignas(64) std::byte buffer[reduce_chunk * 8];
  Counter counter(*p.loops, 1);
  Range range = block_range(p, b);
  Cursor at(p.reduced, range.first);
  for (int64_t r = range.first; r < range.last; r += reduce_chunk) {
    int64_t n = std::min(reduce_chunk, range.last - r);
    const void* chunk = gather_chunk(p, x, at, n, buffer);
    p.loops->rows(chunk, 0, 1, n, counter.next());
    counter.push();
  }
  std::memcpy(result, counter.finish(), p.loops->size);
}

// The same for `width` outputs along the innermost kept axis.
void reduce_columns(const Plan& p, const std::byte* x, int64_t width, int64_t b,
                    std::byte* result) {
  alignas(64) std::byte lanes[reduce_lanes * tile_bytes];
  alignas(64) std::byte buffer[tile_bytes];
  Counter counter(*p.loops, width);
  Range range = block_range(p, b);
  Cursor at(p.reduced, range.first);
  const int64_t step = p.kept.back().stride;
  const bool direct = p.direct && step == 1;
  for (int64_t r = range.first; r < range.last; r += reduce_chunk) {
    int64_t n = std::min(reduce_chunk, range.last - r);
    auto used =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(n, reduce_lanes))));
    p.loops->fill(lanes, used * width);
    for (int64_t done = 0; done < n;) {
      int64_t m = std::min(n - done, direct ? at.run() : 1);
      const std::byte* row = element(p, x, at.offset());
      if (!direct) {
        load_tile(p.in, p.tile_dtype, row, step, width, buffer);
        row = buffer;
      }
      p.loops->columns(row, p.reduced.back().stride, m, width, done % reduce_lanes, lanes);
      at.advance(m);
      done += m;
    }
    p.loops->fold(lanes, used, width);
    std::memcpy(counter.next(), lanes, static_cast<size_t>(width) * p.loops->size);
    counter.push();
  }
  std::memcpy(result, counter.finish(), static_cast<size_t>(width) * p.loops->size);
}

void store(const Plan& p, const std::byte* partials, int64_t first, int64_t n, std::byte* out) {
  store_tile(p.tile_dtype, p.out, partials, n, out + first * static_cast<int64_t>(size_of(p.out)));
}

// Short rows without gaps: outputs [first, last) in as few calls as their axis allows.
void reduce_short_rows(const Plan& p, const std::byte* x, int64_t first, int64_t last,
                       std::byte* out) {
  alignas(64) std::byte partials[tile_bytes];
  Cursor at(p.kept, first);
  for (int64_t i = first; i < last;) {
    int64_t n = std::min({last - i, at.run(), tile_bytes / 8});
    p.loops->rows(element(p, x, at.offset()), p.kept.back().stride, n, p.count, partials);
    store(p, partials, i, n, out);
    at.advance(n);
    i += n;
  }
}

struct Unit {
  int64_t output, width, offset;  // first output, how many, where their first element lies
};
Unit unit_at(const Plan& p, int64_t u) {
  int64_t inner = p.kept.back().size;
  int64_t within = p.by_columns ? u % p.tiles * p.tile : u % inner;
  int64_t output = p.by_columns ? u / p.tiles * inner + within : u;
  return {output, p.by_columns ? std::min(p.tile, inner - within) : 1,
          Cursor(p.kept, output).offset()};
}

void reduce_unit(const Plan& p, const std::byte* x, const Unit& unit, int64_t b,
                 std::byte* result) {
  const std::byte* from = element(p, x, unit.offset);
  if (p.by_columns)
    reduce_columns(p, from, unit.width, b, result);
  else
    reduce_row(p, from, b, result);
}

// Every unit's whole reduction, units split over workers.
void run_units(const Plan& p, const std::byte* x, std::byte* out, WorkerPool& workers) {
  int64_t per_unit = std::max<int64_t>(p.count, 1) * p.tile;
  int64_t batch = std::max<int64_t>(1, task_elements / per_unit);
  bool short_rows = !p.by_columns && p.direct && p.reduced.size() == 1 &&
                    p.reduced[0].stride == 1 && p.count <= reduce_chunk;
  workers.parallel_parts(p.units, batch, [&](int64_t first, int64_t last) {
    if (short_rows) return reduce_short_rows(p, x, first, last, out);
    alignas(64) std::byte result[tile_bytes];
    for (int64_t u = first; u < last; ++u) {
      Unit unit = unit_at(p, u);
      reduce_unit(p, x, unit, 0, result);
      store(p, result, unit.output, unit.width, out);
    }
  });
}

// Few units: blocks of the reduced space are split over workers, then combined.
void run_blocks(const Plan& p, const std::byte* x, std::byte* out, KernelScope& scope) {
  const auto size = static_cast<int64_t>(p.loops->size);
  scope.workers.parallel_for(p.units * p.blocks, [&](int64_t t) {
    int64_t b = t % p.blocks;
    Unit unit = unit_at(p, t / p.blocks);
    reduce_unit(p, x, unit, b, scope.scratch + (b * p.outputs + unit.output) * size);
  });
  for (int64_t u = 0; u < p.units; ++u) {
    Unit unit = unit_at(p, u);
    Counter counter(*p.loops, unit.width);
    for (int64_t b = 0; b < p.blocks; ++b) {
      std::memcpy(counter.next(), scope.scratch + (b * p.outputs + unit.output) * size,
                  static_cast<size_t>(unit.width * size));
      counter.push();
    }
    store(p, counter.finish(), unit.output, unit.width, out);
  }
}

void run(const Plan& p, std::byte* const* args, KernelScope& scope) {
  if (p.blocks > 1)
    run_blocks(p, args[0], args[1], scope);
  else
    run_units(p, args[0], args[1], scope.workers);
}

void run_empty(const Plan& p, std::byte* const* args, KernelScope&) {
  alignas(8) std::byte identity[8];
  p.loops->fill(identity, 1);
  for (int64_t i = 0; i < p.outputs; ++i) store(p, identity, i, 1, args[1]);
}

// By columns where neighbouring outputs lie closer together than neighbouring elements of one
// reduction, or where a reduction is so short that it cannot fill a vector.
bool choose_columns(const Plan& p) {
  const Axis &k = p.kept.back(), &r = p.reduced.back();
  if (k.size == 1) return false;
  if (p.count < reduce_lanes && k.size >= reduce_lanes) return true;
  if (r.stride <= 1) return false;
  return k.stride < r.stride;
}

}  // namespace

void reduce_run(Reducer reducer, Compute compute, const void* x, int64_t n, void* result) {
  const ReduceLoops& loops = reduce_loops(reducer, compute);
  if (n == 0) return loops.fill(result, 1);
  Counter counter(loops, 1);
  for (int64_t r = 0; r < n; r += reduce_chunk) {
    loops.rows(static_cast<const std::byte*>(x) + static_cast<size_t>(r) * loops.size, 0, 1,
               std::min(reduce_chunk, n - r), counter.next());
    counter.push();
  }
  std::memcpy(result, counter.finish(), loops.size);
}

Kernel make_kernel(const Reduce& w) {
  Plan p{w};
  const bool logical = w.reducer == Reducer::all || w.reducer == Reducer::any;
  Compute compute = compute_of(w.in);
  p.loops = &reduce_loops(w.reducer, compute);
  p.tile_dtype = logical ? DType::boolean : dtype_of(compute);
  p.direct = p.in == p.tile_dtype;
  if (p.outputs == 0 || p.count == 0) return Kernel::of<run_empty>(std::move(p));
  p.by_columns = choose_columns(p);
  if (p.by_columns) {
    p.tile = tile_bytes / static_cast<int64_t>(p.loops->size);
    p.tile = std::min(p.tile, p.kept.back().size);
    p.tiles = (p.kept.back().size + p.tile - 1) / p.tile;
    p.units = p.outputs / p.kept.back().size * p.tiles;
  } else {
    p.units = p.outputs;
  }
  size_t scratch = 0;
  if (p.units < few_units && p.chunks() > block_chunks) {
    p.blocks = (p.chunks() + block_chunks - 1) / block_chunks;
    scratch = static_cast<size_t>(p.blocks * p.outputs) * p.loops->size;
  }
  return Kernel::of<run>(std::move(p), scratch);
}

}  // namespace gradus::kernels
