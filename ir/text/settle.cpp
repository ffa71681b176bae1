#include "ir/text/settle.h"

#include <unordered_map>

namespace gradus::ir {

namespace {

// A size that is more than a bare name.
struct Compound {
  size_t input;
  Dim size;
  size_t unknown = 0;  // how many different names of it are not known
};

DimensionNames names_of(const Dim& d) {
  DimensionNames names;
  d.for_each_symbol([&](std::string_view name) { names.emplace(name); });
  return names;
}

}  // namespace

std::optional<UnsettledName> settle_names(std::span<const Type* const> inputs,
                                          DimensionNames& known) {
  std::vector<Compound> compounds;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const Dim& d : inputs[i]->dims) {
      if (d.is_constant()) continue;
      if (auto name = d.symbol_name(); !name.empty())
        known.emplace(name);
      else
        compounds.push_back({i, d});
    }
  std::unordered_map<std::string, std::vector<size_t>> waiting;  // name -> compounds that lack it
  std::vector<size_t> solvable;                                  // that lack one name
  for (size_t c = 0; c < compounds.size(); ++c) {
    for (const std::string& name : names_of(compounds[c].size)) {
      if (known.contains(name)) continue;
      ++compounds[c].unknown;
      waiting[name].push_back(c);
    }
    if (compounds[c].unknown == 1) solvable.push_back(c);
  }
  while (!solvable.empty()) {
    const Compound& c = compounds[solvable.back()];
    solvable.pop_back();
    for (const std::string& name : names_of(c.size)) {
      if (known.contains(name) || !c.size.linear_in(name)) continue;
      known.insert(name);
      for (size_t other : waiting[name])
        if (--compounds[other].unknown == 1) solvable.push_back(other);
    }
  }
  for (const Compound& c : compounds)
    for (const std::string& name : names_of(c.size))
      if (!known.contains(name)) return UnsettledName{c.input, name, c.size};
  return std::nullopt;
}

}  // namespace gradus::ir
