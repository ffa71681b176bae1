#include "tests/ptx/qualifiers.h"

namespace gradus::ptx {

namespace {

// Which caches keep what is read, and how long: changes no result.
bool take_cache(Decoder& d, Qualifiers& q) {
  if (d.take("L2::cache_hint")) {
    q.cache_hint = true;
    return true;
  }
  return d
      .try_of({"ca",
               "cg",
               "cs",
               "lu",
               "cv",
               "wb",
               "wt",
               "L1",
               "L2",
               "L1::evict_normal",
               "L1::evict_unchanged",
               "L1::evict_first",
               "L1::evict_last",
               "L1::no_allocate",
               "L2::evict_normal",
               "L2::evict_first",
               "L2::evict_last",
               "L2::64B",
               "L2::128B",
               "L2::256B"})
      .has_value();
}

bool take_space(Decoder& d, Space& space) {
  static constexpr Space spaces[] = {Space::global, Space::constant, Space::shared, Space::shared,
                                     Space::local,  Space::param,    Space::param,  Space::param};
  const auto s = d.try_of({"global", "const", "shared", "shared::cta", "local", "param",
                           "param::entry", "param::func"});
  if (s) space = spaces[*s];
  return s.has_value();
}

bool take_order(Decoder& d, Qualifiers& q) {
  if (d.take("weak")) return true;
  if (d.try_of({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})) {
    q.strong = true;
    return true;
  }
  return d.try_of({"cta", "cluster", "gpu", "sys"}).has_value();
}

}  // namespace

Qualifiers take_qualifiers(Decoder& d) {
  Qualifiers q;
  for (;;) {
    if (take_order(d, q) || take_space(d, q.space) || take_cache(d, q)) continue;
    if (d.take("nc")) {
      q.non_coherent = true;
      continue;
    }
    const auto v = d.try_of({"v2", "v4", "v8"});
    if (!v) return q;
    q.count = static_cast<uint8_t>(2u << *v);
  }
}

}  // namespace gradus::ptx
