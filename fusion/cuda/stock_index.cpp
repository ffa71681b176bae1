// Reading and writing where indices say, as a kernel.
#include <algorithm>
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view index_text = R"(
// Reads or writes where indices say.
typedef $COUNT$ Count;
struct Fault {
  u64 met, value;
};
struct Work {
$FIELDS$};

// A place as the sides and the indices see it.
struct At {
  i64 indexed, plain;
  i64 index[$INDICES$];  // one at least, so that there is a list
};

template <i32 first, i32 end>
__device__ __forceinline__ void walk(const Work& work, Count left, At& at) {
#pragma unroll
  for (i32 d = end - 1; d >= first; --d) {
    const Count size = Count(work.size[d]), next = d > first ? left / size : 0;
    const i64 i = i64(left - next * size);
    at.indexed += i * work.indexed_by[d];
    at.plain += i * work.plain_by[d];
$WALKS$    left = next;
  }
}

template <class T>
__device__ __forceinline__ bool pick(const T* index, i64 at, i64 bound, i64 step, bool wraps,
                                     Fault* fault, i64& offset) {
  const i64 given = i64(index[at]), i = wraps && given < 0 ? given + bound : given;
  if (i < 0 || i >= bound) {
    if (atomicCAS(&fault->met, 0ull, 1ull) == 0) atomicExch(&fault->value, u64(given));
    return false;
  }
  offset += i * step;
  return true;
}

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count stride = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items);
       item += stride) {
    At outside = {};
    walk<0, $PARALLEL$>(work, item, outside);
#pragma unroll 1
    for (Count step = 0; step < Count(work.steps); ++step) {
      At at = outside;
      walk<$PARALLEL$, $RANK$>(work, step, at);
      bool good = true;
$PICKS$      $MOVE$
    }
  }
}
)";

// The element of the plain side, times alpha where that is said.
std::string term(const work::IndexSides& s, DType there) {
  const DType plain = s.plain_is_number ? s.number_dtype : s.dtype;
  const std::string element = fmt::format("work.plain[{}]", s.plain_is_number ? "0" : "at.plain");
  const std::string value = convert(plain, s.dtype, "(" + hold(plain, element) + ")");
  if (there == DType::boolean) return value;
  if (!is_floating(there)) return fmt::format("u64({}) * u64(work.alpha)", value);
  if (s.alpha.value == 1) return value;
  return fmt::format("{} * {}", value,
                     there == DType::f64 ? "__longlong_as_double(work.alpha)"
                                         : "float(__longlong_as_double(work.alpha))");
}

// What happens at a place of the indexed side.
std::string change(const work::IndexSides& s, DType there, bool atomic) {
  if (s.action == work::IndexAction::write) {
    std::string value = fmt::format("work.plain[{}]", s.plain_is_number ? "0" : "at.plain");
    if (s.plain_is_number)
      value = unhold(s.dtype,
                     convert(s.number_dtype, s.dtype, "(" + hold(s.number_dtype, value) + ")"));
    return fmt::format("work.indexed[at.indexed] = {};", value);
  }
  if (atomic) {
    // Of integers, the bits of the sum do not depend on the sign: there is one for unsigned ones.
    const std::string_view type = is_floating(there) ? memory_type(there) : bits_type(there);
    return fmt::format("atomicAdd(reinterpret_cast<{0}*>(work.indexed + at.indexed), {0}({1}));",
                       type, term(s, there));
  }
  const std::string old = hold(there, "work.indexed[at.indexed]");
  const std::string sum = there == DType::boolean ? fmt::format("({}) || {}", old, term(s, there))
                          : is_floating(there)
                              ? fmt::format("{} + {}", old, term(s, there))
                              : fmt::format("i64(u64({}) + {})", old, term(s, there));
  return fmt::format("work.indexed[at.indexed] = {};", unhold(there, "(" + sum + ")"));
}

}  // namespace

bool adds_atomically(const work::Index& w) {
  return w.sides.action == work::IndexAction::add && size_of(w.indexed_dtype()) >= 4;
}

StockKernel index_kernel(const work::Index& w, int faults, bool atomics) {
  if (numel(w.shape) == 0) return {};
  const work::IndexSides& s = w.sides;
  const bool adds = s.action == work::IndexAction::add, reads = s.action == work::IndexAction::read;
  const bool atomic = atomics && adds_atomically(w);
  // Dimensions that threads share come first; each thread walks all others in order.
  std::vector<size_t> order(w.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto shared = [&](size_t d) { return reads || atomic || !w.serial[d]; };
  const auto parallel =
      static_cast<size_t>(std::ranges::stable_partition(order, shared).begin() - order.begin());
  auto arranged = [&](const Sizes& from) {
    Sizes to;
    for (size_t d : order) to.push_back(from[d]);
    return to;
  };
  int64_t items = 1, steps = 1;
  for (size_t i = 0; i < order.size(); ++i) (i < parallel ? items : steps) *= w.shape[order[i]];

  const DType there = w.indexed_dtype();
  const DType plain = s.plain_is_number ? s.number_dtype : s.dtype;
  const bool bits = !adds && !s.plain_is_number;
  Parameters p;
  p.out(bits ? bits_type(there) : memory_type(there), "indexed",
        Place(w.sums ? work::Window::scratch : s.indexed,
              w.indexed_offset * static_cast<int64_t>(size_of(there))));
  p.out(bits ? bits_type(plain) : memory_type(plain), "plain", s.plain);
  p.out("Fault", "faults", w.indices.empty() ? std::optional<Place>() : Place(faults));
  p.add("items", items).add("steps", steps);
  p.add("alpha", is_floating(s.dtype) ? std::bit_cast<int64_t>(s.alpha.value)
                                      : static_cast<int64_t>(s.alpha));
  p.add("size", arranged(w.shape)).add("indexed_by", arranged(w.indexed));
  p.add("plain_by", arranged(w.plain));
  std::string walks, picks;
  for (size_t k = 0; k < w.indices.size(); ++k) {
    const work::IndexOperand& o = w.indices[k];
    p.in(memory_type(o.dtype), fmt::format("index{}", k), o.argument);
    p.add(fmt::format("bound{}", k), o.size).add(fmt::format("step{}", k), o.step);
    p.add(fmt::format("index{}_by", k), arranged(o.strides));
    walks += fmt::format("    at.index[{0}] += i * work.index{0}_by[d];\n", k);
    picks += fmt::format(
        "      good &= pick(work.index{0}, at.index[{0}], work.bound{0}, work.step{0}, {1},\n"
        "                   work.faults + {0}, at.indexed);\n",
        k, o.wraps);
  }
  const std::string move =
      reads ? fmt::format("work.plain[at.plain] = good ? work.indexed[at.indexed] : {}(0);",
                          bits_type(s.dtype))
            : "if (good) " + change(s, there, atomic);
  return StockText(index_text)
      .with("COUNT", count_type(std::max(items, steps)))
      .with("RANK", static_cast<int>(order.size()))
      .with("PARALLEL", static_cast<int>(parallel))
      .with("INDICES", std::max(1, static_cast<int>(w.indices.size())))
      .with("WALKS", walks)
      .with("PICKS", picks)
      .with("MOVE", move)
      .kernel(p, blocks_of(items));
}

}  // namespace gradus::fusion::cuda
