#include "tests/ptx/memory.h"

#include <cstring>

#include "gradus/error.h"

namespace gradus::ptx {

namespace {

constexpr uint64_t gap = 4096;  // between allocations: what runs past one end finds nobody there

uint64_t round_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

uint64_t Memory::allocate(size_t bytes, size_t align) {
  if (align == 0 || (align & (align - 1)) != 0)
    throw Error("an alignment is a power of two, not {}", align);
  if (bytes > (size_t{1} << 40)) throw Error("an allocation of {} bytes is too large", bytes);
  auto region = std::make_unique<Region>();
  region->base = round_up(next_, align);
  region->reset(bytes);
  next_ = round_up(region->base + bytes + gap, 256);
  allocated_ += bytes;
  const uint64_t base = region->base;
  regions_[base] = std::move(region);
  return base;
}

void Memory::free(uint64_t address) {
  const auto it = regions_.find(address);
  if (it == regions_.end())
    throw Error("free of {:#x}, which no allocation begins at{}", address, describe(address));
  allocated_ -= it->second->size();
  if (last_ == it->second.get()) last_ = nullptr;
  regions_.erase(it);
}

const Region* Memory::find(uint64_t address) const {
  if (last_ && last_->holds(address)) return last_;
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return nullptr;
  Region* r = std::prev(it)->second.get();
  if (!r->holds(address)) return nullptr;
  return last_ = r;
}

Region* Memory::find(uint64_t address) {
  return const_cast<Region*>(static_cast<const Memory*>(this)->find(address));
}

std::string Memory::describe(uint64_t address) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return "; no allocation is near";
  const Region& r = *std::prev(it)->second;
  const uint64_t offset = address - r.base;
  if (offset < r.size()) return fmt::format("; byte {} of an allocation of {}", offset, r.size());
  return fmt::format("; {} bytes behind the end of an allocation of {} bytes at {:#x}",
                     offset - r.size(), r.size(), r.base);
}

const Region& Memory::region(uint64_t address, size_t bytes, const char* what) const {
  const Region* r = find(address);
  if (!r || bytes > r->size() - (address - r->base))
    throw Error("{} of {} bytes at {:#x} leaves allocated memory{}", what, bytes, address,
                describe(address));
  return *r;
}

Region& Memory::region(uint64_t address, size_t bytes, const char* what) {
  return const_cast<Region&>(static_cast<const Memory*>(this)->region(address, bytes, what));
}

void Memory::write(uint64_t to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Region& r = region(to, bytes, "a write");
  std::memcpy(r.data.data() + (to - r.base), from, bytes);
  std::memset(r.defined.data() + (to - r.base), 1, bytes);
}

void Memory::read(void* to, uint64_t from, size_t bytes, Undefined undefined) const {
  if (bytes == 0) return;
  const Region& r = region(from, bytes, "a read");
  const uint64_t offset = from - r.base;
  std::memcpy(to, r.data.data() + offset, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    if (r.defined[offset + i]) continue;
    if (undefined == Undefined::fault)
      throw Error("a read of {} bytes at {:#x}: byte {} of them was never written{}", bytes, from,
                  i, describe(from + i));
    static_cast<std::byte*>(to)[i] = std::byte{0};
  }
}

void Memory::fill(uint64_t to, std::byte value, size_t bytes) {
  if (bytes == 0) return;
  Region& r = region(to, bytes, "a fill");
  std::memset(r.data.data() + (to - r.base), static_cast<int>(value), bytes);
  std::memset(r.defined.data() + (to - r.base), 1, bytes);
}

void Memory::copy(uint64_t to, uint64_t from, size_t bytes) {
  if (bytes == 0) return;
  const Region& a = region(from, bytes, "a copy");
  Region& b = region(to, bytes, "a copy");
  std::memmove(b.data.data() + (to - b.base), a.data.data() + (from - a.base), bytes);
  std::memmove(b.defined.data() + (to - b.base), a.defined.data() + (from - a.base), bytes);
}

void Memory::forget(uint64_t address, size_t bytes) {
  if (bytes == 0) return;
  Region& r = region(address, bytes, "forgetting");
  std::memset(r.defined.data() + (address - r.base), 0, bytes);
}

const std::vector<uint64_t>& Memory::addresses_of(const Module& module) {
  const Code& code = module.code();
  if (auto it = loaded_.find(&code); it != loaded_.end()) return it->second.addresses;
  Loaded loaded{module, {}};
  for (const Variable& v : code.variables) {
    if (v.space == Space::shared) {
      loaded.addresses.push_back(0);
      continue;
    }
    const uint64_t address = allocate(v.bytes, std::max<uint64_t>(v.align, 256));
    loaded.addresses.push_back(address);
    if (v.bytes == 0) continue;
    fill(address, std::byte{0}, v.bytes);  // what has no initial value is zeros
    if (!v.initial.empty()) write(address, v.initial.data(), v.initial.size());
    find(address)->constant = v.space == Space::constant;
  }
  for (size_t i = 0; i < code.variables.size(); ++i)
    for (const auto& p : code.variables[i].pointers) {
      const uint64_t value = loaded.addresses[p.variable] + static_cast<uint64_t>(p.addend);
      write(loaded.addresses[i] + p.at, &value, sizeof value);
    }
  return loaded_.emplace(&code, std::move(loaded)).first->second.addresses;
}

}  // namespace gradus::ptx
