// Runs of nests that reduce columns: in what order rows meet, and who adds them up.
//
// The code combines each row into sixteen accumulators of a column, in turns, which lie in scratch
// memory; what is done with those is the reference's own loops. A call of the code has either
// sixteen rows at most, so that an accumulator is a place that steps from row to row as a store
// does; or, of long rows, those of one accumulator, sixteen rows apart, so that it stays in the
// first cache.
#include <algorithm>
#include <bit>
#include <cstring>

#include "fusion/cpu/bound.h"
#include "kernels/reduce_loops.h"
#include "kernels/tiles.h"

namespace gradus::fusion::cpu {

namespace {

using work::reduce_chunk;
using work::reduce_lanes;

constexpr int64_t lanes_bytes = 128 << 10;       // of accumulators: what stays in the second cache
constexpr int64_t first_cache_bytes = 32 << 10;  // of accumulators: what stays in the first one
constexpr int64_t long_row = 512;                // elements
constexpr int64_t most_blocks = 16;
constexpr int64_t few_parts = 8;  // fewer than these, and one chunk's lanes go to several workers

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A part of the work is some lanes of a block's rows, in some columns. A block is 2^k chunks of
// rows; it leaves a partial of each column in its scratch memory.
struct Columns {
  struct Sum {
    const kernels::ReduceLoops* loops;
    DType accumulator, result;
    int64_t scratch;  // from that of a block's tile: accumulators, then partials by level
  };
  Walks walks;
  size_t first_sum;  // of the slots
  SmallVector<Sum, 4> sums;
  int64_t alone;                // elements that one worker takes
  int64_t count;                // rows in all
  int64_t tile, tiles;          // columns of a part, the last one may have fewer
  int64_t block_chunks = 1;     // a power of two
  int64_t blocks, lane_groups;  // more than one group only where blocks are chunks
  bool lane_by_lane = false;    // the rows of a chunk, by their lanes
  int64_t levels;               // of partials in a block
  int64_t tile_scratch;         // bytes

  int64_t block_rows() const { return block_chunks * reduce_chunk; }
  int64_t parts() const { return blocks * tiles * lane_groups; }
  int64_t width(int64_t t) const { return std::min(tile, walks.columns - t * tile); }
  std::byte* lanes(const work::KernelScope& scope, const Sum& s, int64_t b, int64_t t) const {
    return scope.scratch + (b * tiles + t) * tile_scratch + s.scratch;
  }
  int64_t bytes(const Sum& s) const { return static_cast<int64_t>(s.loops->size); }
  std::byte* partial(std::byte* lanes, const Sum& s, int64_t t, int64_t level) const {
    return lanes + (reduce_lanes + level) * width(t) * bytes(s);
  }

  // Where a row begins, `column` elements on.
  void at(std::byte* const* args, std::byte** pointers, int64_t row, int64_t column) const {
    std::copy_n(args, walks.slots, pointers);
    walks.advance(pointers, row / walks.rows, row % walks.rows, column);
  }

  // Rows [first, last) of one sixteen, into their lanes.
  void add_rows(std::byte* const* args, std::byte* const* lanes, const int64_t* row_steps,
                int64_t first, int64_t last, int64_t t) const {
    SmallVector<std::byte*, 32> pointers(walks.slots);
    while (first < last) {
      const int64_t n = std::min(last - first, walks.rows - first % walks.rows);
      at(args, pointers.data(), first, t * tile);
      for (size_t k = 0; k < sums.size(); ++k)
        pointers[first_sum + k] = lanes[k] + first % reduce_lanes * row_steps[first_sum + k];
      walks.entry(n, width(t), pointers.data(), row_steps, walks.column_steps.data());
      first += n;
    }
  }

  // Rows [first, end) of a chunk, those of `count` lanes from that of `first` on, lane by lane.
  void add_lanes(std::byte* const* args, std::byte* const* lanes, const int64_t* row_steps,
                 int64_t first, int64_t end, int64_t count, int64_t t) const {
    SmallVector<std::byte*, 32> pointers(walks.slots);
    SmallVector<int64_t, 32> steps(walks.slots);
    for (size_t k = 0; k < first_sum; ++k) steps[k] = reduce_lanes * row_steps[k];
    for (int64_t r = first; r < std::min(first + count, end); ++r) {
      at(args, pointers.data(), r, t * tile);
      for (size_t k = 0; k < sums.size(); ++k)
        pointers[first_sum + k] = lanes[k] + r % reduce_lanes * row_steps[first_sum + k];
      walks.entry((end - r + reduce_lanes - 1) / reduce_lanes, width(t), pointers.data(),
                  steps.data(), walks.column_steps.data());
    }
  }

  void run_part(std::byte* const* args, const work::KernelScope& scope, int64_t p) const {
    const int64_t group = p % lane_groups, t = p / lane_groups % tiles, b = p / lane_groups / tiles;
    const int64_t in_group = reduce_lanes / lane_groups, n = width(t);
    SmallVector<std::byte*, 32> at;
    SmallVector<int64_t, 32> row_steps(walks.row_steps.begin(), walks.row_steps.end());
    for (size_t k = 0; k < sums.size(); ++k) {
      at.push_back(lanes(scope, sums[k], b, t));
      row_steps[first_sum + k] = n * bytes(sums[k]);
    }
    const int64_t end = std::min(count, (b + 1) * block_rows());
    int64_t height = 0, pushed = 0;
    for (int64_t chunk = b * block_rows(); chunk < end; chunk += reduce_chunk) {
      for (size_t k = 0; k < sums.size(); ++k)
        sums[k].loops->fill(at[k] + group * in_group * row_steps[first_sum + k], in_group * n);
      const int64_t chunk_end = std::min(end, chunk + reduce_chunk);
      const int64_t first = chunk + group * in_group;
      if (lane_by_lane)
        add_lanes(args, at.data(), row_steps.data(), first, chunk_end, in_group, t);
      else
        for (int64_t r = first; r < chunk_end; r += reduce_lanes)
          add_rows(args, at.data(), row_steps.data(), r, std::min(r + in_group, chunk_end), t);
      if (block_chunks == 1) return;
      push(at.data(), t, height++);
      for (int64_t m = ++pushed; m % 2 == 0; m /= 2) merge(at.data(), t, --height);
    }
    while (height > 1) merge(at.data(), t, --height);
    for (size_t k = 0; k < sums.size(); ++k)
      std::memcpy(at[k], partial(at[k], sums[k], t, 0), static_cast<size_t>(n * bytes(sums[k])));
  }

  // The lanes' fold becomes the partial of a level.
  void push(std::byte* const* lanes, int64_t t, int64_t level) const {
    for (size_t k = 0; k < sums.size(); ++k) {
      sums[k].loops->fold(lanes[k], reduce_lanes, width(t));
      std::memcpy(partial(lanes[k], sums[k], t, level), lanes[k],
                  static_cast<size_t>(width(t) * bytes(sums[k])));
    }
  }
  // partials[level - 1] = combine(partials[level - 1], partials[level])
  void merge(std::byte* const* lanes, int64_t t, int64_t level) const {
    for (size_t k = 0; k < sums.size(); ++k)
      sums[k].loops->combine(partial(lanes[k], sums[k], t, level - 1),
                             partial(lanes[k], sums[k], t, level), width(t));
  }

  // What the blocks have left, neighbour with neighbour.
  void finish(std::byte* const* args, const work::KernelScope& scope) const {
    for (size_t k = 0; k < sums.size(); ++k) {
      const Sum& s = sums[k];
      for (int64_t t = 0; t < tiles; ++t) {
        for (int64_t b = 0; b < blocks && block_chunks == 1; ++b)
          s.loops->fold(lanes(scope, s, b, t), reduce_lanes, width(t));
        for (int64_t step = 1; step < blocks; step *= 2)
          for (int64_t b = 0; b + step < blocks; b += 2 * step)
            s.loops->combine(lanes(scope, s, b, t), lanes(scope, s, b + step, t), width(t));
        kernels::store_tile(
            s.accumulator, s.result, lanes(scope, s, 0, t), width(t),
            args[first_sum + k] + t * tile * static_cast<int64_t>(size_of(s.result)));
      }
    }
  }
};

void run(const void* parameters, std::byte* const* args, work::KernelScope& scope) {
  const Columns& c = *static_cast<const Columns*>(parameters);
  if (c.count * c.walks.columns <= c.alone)
    for (int64_t p = 0; p < c.parts(); ++p) c.run_part(args, scope, p);
  else
    scope.workers.parallel_for(c.parts(), [&](int64_t p) { c.run_part(args, scope, p); });
  c.finish(args, scope);
}

}  // namespace

work::Kernel bind_columns(const Nest& nest, Walks walks, int64_t alone) {
  auto columns =
      std::make_shared<Columns>(Columns{std::move(walks), 0, {}, alone, 1, 1, 1, 1, 1, 1, 0, 0});
  Columns& c = *columns;
  const Walks& w = c.walks;
  c.first_sum = w.slots - nest.column_stores.size();
  c.count = numel(w.outer) * w.rows;
  int64_t wide = 0;  // bytes of a column's accumulators
  for (ValueNumber v : nest.column_stores) {
    const Step& s = nest.steps[v - nest.first_step()];
    const bool logical = *s.reducer == work::Reducer::all || *s.reducer == work::Reducer::any;
    const DType accumulator = logical ? DType::boolean : dtype_of(s.compute);
    c.sums.push_back({&kernels::reduce_loops(*s.reducer, s.compute), accumulator, s.dtype, 0});
    wide += static_cast<int64_t>(size_of(accumulator)) * reduce_lanes;
  }
  c.tile =
      w.whole_rows ? w.columns : std::min(w.columns, std::max<int64_t>(64, lanes_bytes / wide));
  c.tiles = (w.columns + c.tile - 1) / c.tile;
  c.lane_by_lane = w.rows == c.count && c.tile >= long_row && c.tile * wide > first_cache_bytes;
  const int64_t chunks = (c.count + reduce_chunk - 1) / reduce_chunk;
  c.block_chunks = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>((chunks + most_blocks - 1) / most_blocks)));
  c.blocks = (chunks + c.block_chunks - 1) / c.block_chunks;
  while (c.block_chunks == 1 && c.parts() < few_parts && c.lane_groups < reduce_lanes &&
         c.count * w.columns / c.parts() >= 2 * most_chunk_elements)
    c.lane_groups *= 2;
  // A counter over 2^k chunks has k + 1 levels, and one that is to be merged.
  c.levels = c.block_chunks == 1 ? 0 : std::bit_width(static_cast<uint64_t>(c.block_chunks)) + 1;
  for (Columns::Sum& s : c.sums) {
    s.scratch = c.tile_scratch;
    c.tile_scratch += aligned((reduce_lanes + c.levels) * c.tile * c.bytes(s));
  }
  const auto scratch = static_cast<size_t>(c.blocks * c.tiles * c.tile_scratch);
  return {run, std::move(columns), scratch};
}

}  // namespace gradus::fusion::cpu
