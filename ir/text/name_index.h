// Values by name.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "gradus/graph.h"

namespace gradus::ir {

// Finds values of one graph by their names, in one probe or two. The graph is borrowed; names that
// are in the index must not change.
class NameIndex {
 public:
  explicit NameIndex(const Graph& graph) : graph_(graph), slots_(64) {}

  // no_value if there is none.
  ValueId find(std::string_view name) const {
    uint32_t hash = hash_of(name);
    for (size_t i = hash;; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.value == no_value) return no_value;
      if (slot.hash == hash && graph_[slot.value].name == name) return slot.value;
    }
  }
  // Puts the value in under its name; if another has that name, nothing happens and false comes
  // back.
  bool insert(ValueId value) {
    if (find(graph_[value].name) != no_value) return false;
    if (2 * ++size_ > slots_.size()) grow();
    place({hash_of(graph_[value].name), value});
    return true;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    ValueId value = no_value;
  };
  static uint32_t hash_of(std::string_view name) {
    size_t h = std::hash<std::string_view>()(name);
    return static_cast<uint32_t>(h ^ (h >> 32));
  }
  void place(Slot slot) {
    size_t i = slot.hash;
    while (slots_[i & (slots_.size() - 1)].value != no_value) ++i;
    slots_[i & (slots_.size() - 1)] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.value != no_value) place(s);
  }

  const Graph& graph_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace gradus::ir
