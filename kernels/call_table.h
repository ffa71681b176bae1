// Caches of what was made of an operator on operands of certain layouts: one key for all of them.
#pragma once

#include <vector>

#include "gradus/operator.h"
#include "gradus/tensor.h"

namespace gradus::ops {

// An operand of a call: a tensor by its layout, a number, or none.
struct CallOperand {
  const Layout* layout = nullptr;
  Device device;
  const ir::Number* number = nullptr;
};

// A call by what decides its work: the attributes by their identity, numbers by their category.
struct CallKey {
  const ir::Operator& op;
  const ir::Attributes& attributes;
  std::span<const CallOperand> operands;
  std::span<const Layout> results = {};  // where the caller has settled them
  bool number_values = false;            // numbers count by their values, too

  size_t hash() const {
    size_t h = reinterpret_cast<size_t>(&op) ^ reinterpret_cast<size_t>(attributes.get()) * 31;
    auto mix = [&](size_t n) { h = (h ^ n) * 0x9e3779b97f4a7c15; };
    for (const CallOperand& o : operands) {
      mix(kind_of(o));
      if (o.layout)
        for (int64_t n : o.layout->shape) mix(static_cast<size_t>(n));
      else if (o.number && number_values)
        mix(o.number->bits());
    }
    for (const Layout& l : results)
      for (int64_t n : l.shape) mix(static_cast<size_t>(n));
    return h;
  }
  static uint8_t kind_of(const CallOperand& o) {
    if (o.layout) return 1;
    return o.number ? static_cast<uint8_t>(2 + static_cast<size_t>(o.number->category)) : 0;
  }
};

// The latest value of each of a few places, by key. One thread at a time.
template <class V>
class CallTable {
 public:
  explicit CallTable(size_t places) : places_(places) {}

  // Null where there is none, or another took its place. Good until the next insert.
  const V* find(const CallKey& key) const {
    const Place& place = places_[place_of(key)];
    return place.matches(key) ? &place.value : nullptr;
  }
  const V& insert(const CallKey& key, V value) {
    return (places_[place_of(key)] = Place(key, std::move(value))).value;
  }

 private:
  struct Operand {
    uint8_t kind;
    Device device;
    Layout layout;
    uint64_t number;
  };
  struct Place {
    Place() = default;
    Place(const CallKey& key, V v)
        : op(&key.op),
          attributes(key.attributes),
          results(key.results.begin(), key.results.end()),
          value(std::move(v)) {
      for (const CallOperand& o : key.operands)
        operands.push_back({CallKey::kind_of(o), o.device, o.layout ? *o.layout : Layout(),
                            o.number ? o.number->bits() : 0});
    }
    bool matches(const CallKey& key) const {
      if (op != &key.op || attributes.get() != key.attributes.get() ||
          operands.size() != key.operands.size() || results.size() != key.results.size())
        return false;
      for (size_t i = 0; i < operands.size(); ++i) {
        const CallOperand& o = key.operands[i];
        if (operands[i].kind != CallKey::kind_of(o)) return false;
        if (o.layout && !(operands[i].device == o.device && operands[i].layout == *o.layout))
          return false;
        if (o.number && key.number_values && operands[i].number != o.number->bits()) return false;
      }
      for (size_t i = 0; i < results.size(); ++i)
        if (!(results[i] == key.results[i])) return false;
      return true;
    }
    const ir::Operator* op = nullptr;
    ir::Attributes attributes;
    SmallVector<Operand, 2> operands;
    SmallVector<Layout, 1> results;
    V value = {};
  };
  size_t place_of(const CallKey& key) const { return (key.hash() >> 40) % places_.size(); }
  std::vector<Place> places_;
};

}  // namespace gradus::ops
