// Adding up what overlaps: indices that are known when work is made.
#include <algorithm>

#include "kernels/accumulate.h"
#include "kernels/copies.h"
#include "kernels/index_parts.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // what one worker takes at a time, about

// What the target begins with, to which the elements of the plain side are added in row-major
// order.
struct SumPlan {
  int plain = 0, indexed = 0;  // arguments
  Layout source;
  Sizes strides;  // of the target, per dimension of the source
  int64_t offset = 0;
  bool in_scratch = false;  // sums are kept there
  Copies begin, end;
  int64_t chunk_rows = 1;  // rows of the source that no others share an element with
};

// Windows make short rows; a dimension that stands apart may be the row instead, and no sum changes
// its order.
void lengthen_rows(SumPlan& p) {
  constexpr int64_t short_row = 8;
  size_t best = p.strides.size() - 1;
  if (p.source.shape[best] >= short_row) return;
  for (size_t d = 0; d + 1 < p.strides.size(); ++d)
    if (p.source.shape[d] >= short_row && stands_apart(p.source.shape, p.strides, d) &&
        (best + 1 == p.strides.size() || p.strides[d] < p.strides[best]))
      best = d;
  for (Sizes* list : {&p.source.shape, &p.source.strides, &p.strides})
    std::rotate(list->begin() + static_cast<int64_t>(best),
                list->begin() + static_cast<int64_t>(best) + 1, list->end());
}

// How many rows make up one index of the leading dimensions whose indices reach different elements.
int64_t rows_apart(const Layout& source, const Sizes& strides) {
  const size_t rank = source.shape.size();
  SmallVector<int64_t, 6> reach(rank + 1, 0);  // of the dimensions from d on
  for (size_t d = rank; d-- > 0;) reach[d] = reach[d + 1] + (source.shape[d] - 1) * strides[d];
  size_t leading = 0;
  while (leading + 1 < rank &&
         (source.shape[leading] == 1 || strides[leading] > reach[leading + 1]))
    ++leading;
  int64_t rows = 1;
  for (size_t d = leading; d + 1 < rank; ++d) rows *= source.shape[d];
  return rows;
}

void add_rows(const SumPlan& p, const std::byte* source, std::byte* target, int64_t first,
              int64_t last) {
  const auto size = static_cast<int64_t>(size_of(p.source.dtype)),
             acc_size = static_cast<int64_t>(size_of(accumulation_dtype(p.source.dtype)));
  const size_t outer = p.source.shape.size() - 1;
  Walk<2> walk({p.source.shape.data(), outer},
               {std::span(p.source.strides.data(), outer), std::span(p.strides.data(), outer)},
               first);
  for (int64_t r = first; r < last; ++r, walk.next())
    add_row(p.source.dtype, source + walk.offset(0) * size, p.source.strides.back(),
            target + (p.offset + walk.offset(1)) * acc_size, p.strides.back(),
            p.source.shape.back());
}

void run_sum(const SumPlan& p, std::byte* const* args, KernelScope& scope) {
  p.begin.run(args, scope);
  std::byte* target = p.in_scratch ? scope.scratch : args[p.indexed];
  if (const int64_t count = p.source.numel(); count > 0) {
    const int64_t rows = count / p.source.shape.back();
    scope.workers.parallel_parts(rows, p.chunk_rows, [&](int64_t first, int64_t last) {
      add_rows(p, args[p.plain], target, first, last);
    });
  }
  p.end.run(args, scope);
}

}  // namespace

Kernel make_sums(const Index& w) {
  SumPlan p{w.sides.plain,   w.sides.indexed,  Layout(w.sides.dtype, w.shape, w.plain),
            w.indexed,       w.indexed_offset, w.sums > 0,
            Copies(w.begin), Copies(w.end)};
  if (p.source.numel() > 0) {
    lengthen_rows(p);
    const int64_t apart = rows_apart(p.source, p.strides);
    p.chunk_rows = std::max<int64_t>(1, chunk_elements / (apart * p.source.shape.back())) * apart;
  }
  return Kernel::of<run_sum>(std::move(p), static_cast<size_t>(w.sums_bytes()));
}

}  // namespace gradus::kernels
