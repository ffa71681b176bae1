// A memory pool for small objects that are often made and destroyed: nodes, variables, small
// tensors.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)

namespace gradus::pool {

// The largest size of a pooled block. Larger blocks are from the C++ heap.
inline constexpr size_t most_bytes = 1024;

// `take` returns an uninitialised block, aligned to 64 bytes, or throws std::bad_alloc. `give`
// frees it and needs the size that was passed to `take`. Thread-safe: any thread may free a block.
// Each thread keeps some free blocks. All threads share the others.
void* take(size_t bytes);
void give(void* block, size_t bytes) noexcept;

// The limit of the bytes of empty pages that the pool keeps; the system may reclaim further empty
// pages. pooled_bytes returns the bytes of all pages, in use or empty.
inline constexpr size_t most_kept_bytes = size_t{256} << 20;
size_t pooled_bytes();

// A base class whose objects, including those of derived classes, are in the pool.
struct Object {
  static void* operator new(size_t bytes) { return take(bytes); }
  static void* operator new(size_t, void* place) noexcept { return place; }
  static void operator delete(void* block, size_t bytes) noexcept { give(block, bytes); }
};

}  // namespace gradus::pool

#pragma GCC visibility pop
