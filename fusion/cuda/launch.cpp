#include "fusion/cuda/launch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fusion/cuda/prelude.h"
#include "gradus/tensor.h"
#include "work/reduce.h"

namespace gradus::fusion::cuda {

namespace {

constexpr int64_t most_items = (int64_t{1} << 31) - 1;
constexpr int64_t most_columns = int64_t{1} << 30;  // of one launch; a multiple of every pack

size_t slots_of(const Nest& nest) {
  return nest.loads.size() + nest.stores.size() + nest.row_stores.size();
}

DType dtype_of_slot(const Nest& nest, size_t slot) {
  if (slot < nest.loads.size()) return nest.loads[slot].dtype;
  slot -= nest.loads.size();
  if (slot < nest.stores.size()) return nest.dtype_of(nest.stores[slot]);
  return nest.dtype_of(nest.row_stores[slot - nest.stores.size()]);
}

int64_t rows_of(const Frame& frame) {
  return frame.count() / std::max<int64_t>(frame.sizes.back(), 1);
}

int64_t packs_in_row(const KernelShape& shape, const Frame& frame) {
  return (frame.sizes.back() + shape.pack - 1) / shape.pack;
}

// Sixteens of threads for a row: a power of two.
int64_t groups_for(const Frame& frame) {
  const int64_t chunks = (frame.sizes.back() + work::reduce_chunk - 1) / work::reduce_chunk;
  return std::min<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(chunks))),
                           most_chunks);
}

// How far a slot moves in memory from one index of a dimension to the next.
int64_t step_of(const Nest& nest, const Frame& frame, size_t slot, size_t dim) {
  const size_t loads = nest.loads.size(), last = frame.sizes.size() - 1;
  const auto bytes = static_cast<int64_t>(size_of(dtype_of_slot(nest, slot)));
  if (slot < loads)
    return nest.loads[slot].walks[dim] == Walk::broadcast ? 0 : frame.strides[slot][dim] * bytes;
  const bool of_row = slot >= loads + nest.stores.size();
  if (of_row && dim == last) return 0;
  int64_t step = bytes;
  for (size_t d = dim + 1; d < frame.sizes.size(); ++d)
    if (!(of_row && d == last)) step *= frame.sizes[d];
  return step;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.resize((bytes.size() + sizeof value - 1) / sizeof value * sizeof value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

}  // namespace

LaunchPlan::LaunchPlan(const Nest& nest, const KernelShape& shape, const Frame& frame,
                       int multiprocessors) {
  if (frame.count() == 0) return;
  if (shape.by_rows && frame.sizes.back() > most_items)
    throw Error("CUDA kernels take rows of at most {} elements, these have {}", most_items,
                frame.sizes.back());
  find_alignments(nest, shape, frame);
  split(nest, shape, frame, std::vector<int64_t>(slots_of(nest)), multiprocessors);
}

// Along the outermost dimension there is: what is stored stays without gaps.
void LaunchPlan::split(const Nest& nest, const KernelShape& shape, Frame frame,
                       std::vector<int64_t> offsets, int multiprocessors) {
  const int64_t items =
      shape.by_rows ? rows_of(frame) : rows_of(frame) * packs_in_row(shape, frame);
  if (items <= most_items && (shape.by_rows || frame.sizes.back() <= most_items))
    return add_part(nest, shape, frame, std::move(offsets), multiprocessors);
  size_t d = 0;
  while (frame.sizes[d] == 1) ++d;
  const bool last = d + 1 == frame.sizes.size();
  const int64_t all = frame.sizes[d], each = last ? most_columns : (all + 1) / 2;
  for (int64_t first = 0; first < all; first += each) {
    Frame part = frame;
    part.sizes[d] = std::min(each, all - first);
    std::vector<int64_t> moved = offsets;
    for (size_t k = 0; k < moved.size(); ++k) moved[k] += first * step_of(nest, frame, k, d);
    split(nest, shape, std::move(part), std::move(moved), multiprocessors);
  }
}

void LaunchPlan::add_part(const Nest& nest, const KernelShape& shape, const Frame& frame,
                          std::vector<int64_t> offsets, int multiprocessors) {
  const int64_t rows = rows_of(frame);
  const int64_t groups = shape.by_rows ? groups_for(frame) : packs_in_row(shape, frame);
  const int64_t items = rows * (shape.by_rows ? 1 : groups);
  const int64_t each = shape.by_rows ? most_chunks / groups : block_threads;
  Part part;
  part.blocks = static_cast<uint32_t>(
      std::min((items + each - 1) / each, blocks_each * std::max(multiprocessors, 1)));
  part.offsets = std::move(offsets);
  for (const Field& f : fields_of(nest, shape)) {
    if (f.wide()) {
      // Of a loop of one element the stride has no say.
      append<int64_t>(part.fields, frame.sizes[f.dim] == 1 ? 0 : frame.strides[f.load][f.dim]);
      continue;
    }
    if (f.kind == Field::whole) whole_ = part.fields.size();
    const int64_t value = f.kind == Field::size     ? frame.sizes[f.dim]
                          : f.kind == Field::rows   ? rows
                          : f.kind == Field::groups ? groups
                          : f.kind == Field::items  ? items
                                                    : 0;
    append(part.fields, static_cast<uint32_t>(value));
  }
  // A struct with a field of 64 bits ends at a multiple of them.
  const auto fields = fields_of(nest, shape);
  if (!fields.empty() && fields.back().wide()) part.fields.resize((part.fields.size() + 7) / 8 * 8);
  bytes_ = slots_of(nest) * 8 + part.fields.size();
  parts_.push_back(std::move(part));
}

void LaunchPlan::find_alignments(const Nest& nest, const KernelShape& shape, const Frame& frame) {
  if (shape.by_rows) return;
  const size_t loads = nest.loads.size(), last = frame.sizes.size() - 1;
  for (size_t k = 0; k < loads + nest.stores.size(); ++k) {
    const uint64_t pack =
        std::min<uint64_t>(16, size_of(dtype_of_slot(nest, k)) * static_cast<uint64_t>(shape.pack));
    bool fits = k >= loads || nest.loads[k].walks.back() == Walk::contiguous;
    for (size_t d = 0; d < last; ++d)
      fits = fits &&
             (frame.sizes[d] == 1 || static_cast<uint64_t>(step_of(nest, frame, k, d)) % pack == 0);
    alignments_.push_back(fits ? pack : 0);
  }
}

LaunchPlan::Launch LaunchPlan::launch(size_t part, std::span<const uint64_t> addresses,
                                      std::span<std::byte> room) const {
  const Part& p = parts_[part];
  GRADUS_CHECK(addresses.size() == p.offsets.size() && room.size() >= bytes_);
  uint32_t whole = 0;
  for (size_t k = 0; k < addresses.size(); ++k) {
    const uint64_t at = addresses[k] + static_cast<uint64_t>(p.offsets[k]);
    std::memcpy(room.data() + 8 * k, &at, 8);
    if (k < alignments_.size() && alignments_[k] && at % alignments_[k] == 0) whole |= 1u << k;
  }
  std::byte* fields = room.data() + 8 * addresses.size();
  std::memcpy(fields, p.fields.data(), p.fields.size());
  if (whole_ != SIZE_MAX) std::memcpy(fields + whole_, &whole, sizeof whole);
  return {p.blocks, room.first(bytes_)};
}

}  // namespace gradus::fusion::cuda
