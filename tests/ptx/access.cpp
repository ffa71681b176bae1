#include "tests/ptx/access.h"

#include "gradus/error.h"

namespace gradus::ptx {

namespace {

struct Accessed {
  Warp& w;
  unsigned lane;
  Space space;
  uint64_t address;
  unsigned bytes;
  Access access;

  const char* verb() const {
    return access == Access::update ? "atomic access" : writes(access) ? "store" : "load";
  }
  [[noreturn]] void fault(const std::string& what) const {
    w.fault(lane, fmt::format("{} of {} bytes at {} address {:#x} {}", verb(), bytes,
                              name_of(space), address, what));
  }
};

std::string in_words(Toucher t, bool other_block) {
  const std::string where = other_block ? "of another block" : "of the block";
  if (t.is_thread()) return fmt::format("thread {} {}", t.who(), where);
  if (t.is_warp()) return fmt::format("threads of warp {} {}", t.warp(), where);
  return "threads " + where;
}

Target in_region(const Accessed& a, Region& r, uint64_t offset) {
  Shadow* shadow = r.shadow.data() + offset;
  const Clock& clock = a.w.block().clock();
  const Race race = touch(shadow, a.bytes, a.access, a.w.thread(a.lane), clock);
  if (race.found)
    a.fault(fmt::format("is a data race: {} {} byte {} of it, and no barrier stands between",
                        in_words(race.earlier, race.time < clock.block),
                        race.earlier_wrote ? "wrote" : "read", race.byte));
  return {r.data.data() + offset, r.defined.data() + offset, true};
}

Target in_shared(const Accessed& a) {
  Region& r = a.w.block().shared();
  const uint64_t offset = a.address - r.base;
  if (offset >= r.size() || a.bytes > r.size() - offset)
    a.fault(fmt::format("leaves the block's {} bytes of shared memory, which begin at {:#x}",
                        r.size(), r.base));
  return in_region(a, r, offset);
}

Target in_local(const Accessed& a) {
  LocalMemory& local = a.w.local(a.lane);
  if (a.address >= local.data.size() || a.bytes > local.data.size() - a.address)
    a.fault(fmt::format("leaves the thread's {} bytes of local memory", local.data.size()));
  return {local.data.data() + a.address, local.defined.data() + a.address, false};
}

Target in_params(const Accessed& a) {
  if (a.address - frame_window < window_size) {
    Frame& f = a.w.frame();
    const size_t size = f.function->param_bytes;
    const uint64_t offset = a.address - frame_window;
    if (offset >= size || a.bytes > size - offset) a.fault("leaves the call's parameters");
    const size_t at = a.lane * size + offset;
    return {f.params.data() + at, f.params_defined.data() + at, false};
  }
  auto& params = a.w.block().grid().params;
  static uint8_t defined[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const uint64_t offset = a.address - param_window;
  if (offset >= params.size() || a.bytes > params.size() - offset)
    a.fault("leaves the kernel's parameters");
  if (writes(a.access)) a.fault("writes a parameter of the kernel");
  return {params.data() + offset, defined, true};
}

Target in_global(const Accessed& a) {
  Memory& memory = a.w.block().grid().memory;
  Region* r = memory.find(a.address);
  if (!r) a.fault("is outside of what is allocated" + memory.describe(a.address));
  const uint64_t offset = a.address - r->base;
  if (a.bytes > r->size() - offset)
    a.fault("runs over the end of what is allocated" + memory.describe(a.address));
  if (a.space == Space::constant && !r->constant) a.fault("is not in constant memory");
  if (a.space == Space::global && r->constant) a.fault("is in constant memory");
  if (writes(a.access) && r->constant) a.fault("writes what is constant");
  return in_region(a, *r, offset);
}

}  // namespace

Target locate(Warp& w, unsigned lane, Space space, uint64_t address, unsigned bytes,
              Access access) {
  Accessed a{w, lane, space, address, bytes, access};
  if (address % bytes) a.fault(fmt::format("is misaligned: {} bytes too far", address % bytes));
  switch (space) {
    case Space::shared:
      return in_shared(a);
    case Space::local:
      return in_local(a);
    case Space::param:
    case Space::entry_param:
      return in_params(a);
    case Space::global:
    case Space::constant:
      return in_global(a);
    case Space::generic:
      break;
  }
  if (address - shared_window < window_size) {
    a.address -= shared_window;
    return in_shared(a);
  }
  if (address - local_window < window_size) {
    a.address -= local_window;
    return in_local(a);
  }
  if (address - param_window < window_size) return in_params(a);
  return in_global(a);
}

}  // namespace gradus::ptx
