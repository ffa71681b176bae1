// Memory for the many small objects that come and go: nodes, variables, small tensors.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)

namespace gradus::pool {

// Blocks up to this size are pooled; larger ones are the C++ heap's.
inline constexpr size_t most_bytes = 1024;

// Uninitialised, aligned to 64 bytes. Throws std::bad_alloc. Thread-safe: any thread may give a
// block back, with the size it was taken with. Each thread keeps some blocks at hand, all
// threads share the rest. Of pages that lie empty the system may have what is beyond some bytes.
void* take(size_t bytes);
void give(void* block, size_t bytes) noexcept;

// Bytes of empty pages that only we may have; of all pages, in use or not.
inline constexpr size_t most_kept_bytes = size_t{256} << 20;
size_t pooled_bytes();

// A base whose objects, and those of classes that derive from it, lie in the pool.
struct Object {
  static void* operator new(size_t bytes) { return take(bytes); }
  static void* operator new(size_t, void* place) noexcept { return place; }
  static void operator delete(void* block, size_t bytes) noexcept { give(block, bytes); }
};

}  // namespace gradus::pool

#pragma GCC visibility pop
