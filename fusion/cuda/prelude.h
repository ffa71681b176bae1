// What generated kernels call: short pieces of CUDA C++, of which a source gets those it names.
#pragma once

#include <string>
#include <string_view>

namespace gradus::fusion::cuda {

// Threads of a block, in every kernel.
inline constexpr unsigned block_threads = 256;
// Threads that work on one chunk of a row: as many as work::reduce_lanes.
inline constexpr unsigned chunk_threads = 16;
// Chunks of a row that a block works on at a time, at most.
inline constexpr unsigned most_chunks = block_threads / chunk_threads;

// The names of integers, and the pieces that `text` calls, in an order that compiles.
std::string prelude_for(std::string_view text);

}  // namespace gradus::fusion::cuda
