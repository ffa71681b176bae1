// The device's memory: allocations with gaps between them, each byte known to be written or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/ptx/module.h"
#include "tests/ptx/shadow.h"

namespace gradus::ptx {

// Not to be used by two threads at once. All sizes are bytes. Every fault is an Error that says
// what address, which allocation is near, and what was tried.
class Memory {
 public:
  // Undefined bytes. An address is never given out twice, and none is 0; `align` is a power of two.
  // A size of 0 gives an address that nothing may touch.
  uint64_t allocate(size_t bytes, size_t align = 256);
  // `address` is what allocate gave; every later access to it is a fault.
  void free(uint64_t address);

  void write(uint64_t to, const void* from, size_t bytes);
  // What an undefined byte is read as by the host.
  enum class Undefined { fault, zero };
  void read(void* to, uint64_t from, size_t bytes, Undefined = Undefined::fault) const;
  void fill(uint64_t to, std::byte value, size_t bytes);
  // From device to device; undefined bytes stay so.
  void copy(uint64_t to, uint64_t from, size_t bytes);
  // Takes these bytes for undefined again, as when an allocator hands them to somebody else.
  void forget(uint64_t address, size_t bytes);

  size_t allocated_bytes() const { return allocated_; }

  // For the interpreter: the allocation that holds an address, or null.
  Region* find(uint64_t address);
  // What lies at or near an address, in words.
  std::string describe(uint64_t address) const;
  // Where a module's variables lie (0 for shared ones); puts them there when first asked.
  const std::vector<uint64_t>& addresses_of(const Module&);
  Clock clock;

 private:
  Region& region(uint64_t address, size_t bytes, const char* what);
  const Region& region(uint64_t address, size_t bytes, const char* what) const;
  const Region* find(uint64_t address) const;

  struct Loaded {
    Module module;  // keeps the key alive
    std::vector<uint64_t> addresses;
  };

  // Generic addresses below are windows of shared, local and parameter memory.
  uint64_t next_ = uint64_t{0x7000} << 32;
  size_t allocated_ = 0;
  std::map<uint64_t, std::unique_ptr<Region>> regions_;  // by base
  mutable Region* last_ = nullptr;
  std::map<const Code*, Loaded> loaded_;
};

}  // namespace gradus::ptx
