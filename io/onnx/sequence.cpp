// Sequences and optionals: lists that are there while importing alone.
#include <algorithm>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

const std::vector<ItemPtr>& sequence(Call& c, size_t i) {
  if (c.item(i)->kind != Item::Kind::sequence) c.fail("input {} is no sequence", i);
  return c.item(i)->items;
}

// A copy to be changed. Loops change sequences step by step.
std::vector<ItemPtr> copy_of_sequence(Call& c) {
  c.importer().count(sequence(c, 0).size() / 64);
  return sequence(c, 0);
}

// A place in n elements; `end` allows the one behind them.
size_t place(Call& c, size_t i, size_t n, bool end) {
  int64_t at = c.integer(i, "position"), size = static_cast<int64_t>(n);
  if (at < -size || at > size - (end ? 0 : 1))
    c.fail("position {} is out of range for {} elements", at, n);
  return static_cast<size_t>(at < 0 ? at + size : at);
}

void construct(Call& c) {
  std::vector<ItemPtr> items;
  for (size_t i = 0; i < c.inputs(); ++i) items.push_back(c.item(i));
  c.give(Item::sequence(std::move(items)));
}

void empty(Call& c) { c.give(Item::sequence({})); }

void insert(Call& c) {
  std::vector<ItemPtr> items = copy_of_sequence(c);
  size_t at = c.given(2) ? place(c, 2, items.size(), true) : items.size();
  items.insert(items.begin() + static_cast<ptrdiff_t>(at), c.item(1));
  c.give(Item::sequence(std::move(items)));
}

void erase(Call& c) {
  std::vector<ItemPtr> items = copy_of_sequence(c);
  if (items.empty()) c.fail("the sequence is empty");
  size_t at = c.given(1) ? place(c, 1, items.size(), false) : items.size() - 1;
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  c.give(Item::sequence(std::move(items)));
}

void element(Call& c) { c.give(sequence(c, 0)[place(c, 1, sequence(c, 0).size(), false)]); }

void length(Call& c) {
  c.give(Item::of_sizes({static_cast<int64_t>(sequence(c, 0).size())}, true));
}

void split(Call& c) {
  Value x = c.x();
  int axis = c.axis("axis", 0);
  Ints sizes;
  bool keep = c.given(1) || c.flag("keepdims", true);
  if (c.given(1) && c.rank(1) == 1) {
    sizes = c.integers(1, "split");
  } else {
    auto n = x.dims()[static_cast<size_t>(axis)].constant();
    if (!n) c.unsupported("SplitToSequence along a size that has a name");
    int64_t each = c.given(1) ? c.integer(1, "split") : 1;
    if (each < 1) c.fail("it cannot be split into parts of {}", each);
    if (*n / each > 100'000) c.unsupported("SplitToSequence into {} parts", *n / each);
    for (int64_t left = *n; left > 0; left -= sizes.back()) sizes.push_back(std::min(each, left));
  }
  std::vector<ItemPtr> items;
  for (Value& v : emit_all(c.world(), "split", std::vector{x},
                           {{"sizes", Literal::list(sizes)}, {"dim", axis}}))
    items.push_back(Item::of(keep ? v : squeeze(v, axis)));
  c.give(Item::sequence(std::move(items)));
}

void join(Call& c) {
  bool fresh = c.flag("new_axis");
  if (sequence(c, 0).empty()) c.fail("the sequence is empty");
  c.give(c.importer().joined(fresh ? "stack" : "cat", sequence(c, 0),
                             c.attribute("axis", int64_t{0})));
}

// The body for each element; what is no sequence is given every time.
void map(Call& c) {
  size_t n = sequence(c, 0).size();
  std::vector<std::vector<ItemPtr>> results(c.outputs());
  for (size_t k = 0; k < n; ++k) {
    std::vector<ItemPtr> in;
    for (size_t i = 0; i < c.inputs(); ++i) {
      const ItemPtr& item = c.item(i);
      bool each = item->kind == Item::Kind::sequence;
      if (each && item->items.size() != n) c.fail("its sequences have different lengths");
      in.push_back(each ? item->items[k] : item);
    }
    std::vector<ItemPtr> out = c.importer().run_graph(c.graph("body"), std::move(in));
    if (out.size() != results.size()) c.fail("its body has a wrong number of results");
    for (size_t i = 0; i < out.size(); ++i) results[i].push_back(out[i]);
  }
  for (auto& list : results) c.give(Item::sequence(std::move(list)));
}

// An optional is what it holds, or nothing.
void optional(Call& c) { c.give(c.given(0) ? c.item(0) : Item::nothing()); }

void has_element(Call& c) {
  bool there = c.given(0) && c.item(0)->kind != Item::Kind::nothing;
  c.give(Item::of(Tensor::scalar(DType::boolean, there)));
}

void get_element(Call& c) {
  if (c.item(0)->kind == Item::Kind::nothing) c.fail("the optional holds nothing");
  c.give(c.item(0));
}

constexpr RuleEntry sequence_table[] = {
    {"SequenceConstruct", 11, construct, {}, false},
    {"SequenceEmpty", 11, empty, {}, false},
    {"SequenceInsert", 11, insert, {}, false},
    {"SequenceErase", 11, erase, {}, false},
    {"SequenceAt", 11, element, {}, false},
    {"SequenceLength", 11, length, {}, false},
    {"SplitToSequence", 11, split, {}, false},
    {"ConcatFromSequence", 11, join, {}, false},
    {"SequenceMap", 17, map, {}, false},
    {"Optional", 15, optional, {}, false},
    {"OptionalHasElement", 15, has_element, {}, false},
    {"OptionalGetElement", 15, get_element, {}, false},
};

}  // namespace

constinit const Rules sequence_rules = sequence_table;

}  // namespace gradus::onnx
