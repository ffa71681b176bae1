// What groups of every sort share: which calls there are, and reductions in the order of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradus/communicator.h"

namespace gradus::ranks {

// Of the ranks of a group: r itself, or from the end of it.
inline int modulo(int64_t r, int size) { return static_cast<int>(((r % size) + size) % size); }

inline bool is_message(CollectiveKind k) {
  return k == CollectiveKind::send || k == CollectiveKind::receive;
}
inline bool is_reduction(CollectiveKind k) {
  return k == CollectiveKind::all_reduce || k == CollectiveKind::reduce_scatter;
}

// Throws Error where no rank of such a group can make the call: sizes, peers, sums of bool.
void check_call(const CollectiveCall& call, int size);

// Whether two ranks may make these calls as one: what neither kind reads may differ.
bool same_call(const CollectiveCall& a, const CollectiveCall& b);

// out[n] = in[0][n], in[1][n], .. one after the other. Floats of 16 bits are added as f32 and
// rounded once. Integers wrap. NaN wins over numbers in max and min, and 0 is more than -0, so that
// no order of operands matters there.
void reduce(DType dtype, CollectiveReducer reducer, std::span<const std::byte* const> in,
            std::byte* out, int64_t n);

// "rank 1", "ranks 1, 2"
std::string names_of_ranks(std::span<const int> ranks);

// What memcpy does, and nothing where there is nothing.
void copy_bytes(std::byte* out, const std::byte* in, int64_t bytes);

}  // namespace gradus::ranks
