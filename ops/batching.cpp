#include "ops/batching.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace gradus::ops {

namespace {

using Results = SmallVector<Value, 2>;
using Rule = Results (*)(const BatchedCall&);

Dims with_batch(const BatchedCall& c, const Dims& dims) {
  Dims all{c.size};
  all.append(dims.begin(), dims.end());
  return all;
}

// Operand i with the added dimension, and `rank` others: sizes of 1 after it where it has fewer.
Value aligned(const BatchedCall& c, size_t i, int rank) {
  const Value& x = c.operands[i];
  const int own = x.rank() - 1;
  Dims dims{c.size};
  for (int d = own; d < rank; ++d) dims.push_back(1);
  dims.append(x.dims().begin() + 1, x.dims().end());
  return reshape(x, dims);
}

// Operand i with the added dimension, also where it has it not.
Value stretched(const BatchedCall& c, size_t i) {
  const Value& x = c.operands[i];
  return c.batched[i] || !x.is_tensor() ? x : expand(x, with_batch(c, x.dims()));
}

Results emit_with(const BatchedCall& c, std::span<const Value> operands,
                  const LiteralList& attributes) {
  return c.world.emit(c.op, c.op.read(attributes), operands);
}

// All attributes, defaults included.
LiteralList attributes_of(const BatchedCall& c) {
  LiteralList list = c.op.write(c.attributes);
  for (const ir::NamedLiteral& a : c.op.describe()) {
    bool given = std::any_of(list.begin(), list.end(), [&](auto& g) { return g.name == a.name; });
    if (!given) list.push_back({a.name, a.value, {}});
  }
  return list;
}

bool names_dimensions(std::string_view attribute) {
  return attribute == "dim" || attribute == "dims" || attribute == "dim0" || attribute == "dim1" ||
         attribute == "dim2";
}

Literal one_further(const Literal& l) {
  if (const Dim* d = std::get_if<Dim>(&l.value); d && d->is_constant())
    return d->value() < 0 ? l : Literal(d->value() + 1);
  if (const auto* list = std::get_if<std::vector<Literal>>(&l.value)) {
    std::vector<Literal> moved;
    for (const Literal& item : *list) moved.push_back(one_further(item));
    return moved;
  }
  return l;
}

// Attributes for operands with the dimension in front: those that count from the front move.
LiteralList moved_attributes(const BatchedCall& c) {
  LiteralList list = attributes_of(c);
  for (ir::NamedLiteral& a : list)
    if (names_dimensions(a.name)) a.value = one_further(a.value);
  return list;
}

Results pointwise(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i)
    operands.push_back(c.batched[i] ? aligned(c, i, c.results[0].rank()) : c.operands[i]);
  Value y = c.world.emit(c.op, c.attributes, operands)[0];
  // What was 0-d has a say in the dtype now.
  return {cast(y, c.results[0].dtype)};
}

// Every tensor gets the dimension, attributes that count dimensions move on.
Results moved(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) operands.push_back(stretched(c, i));
  return emit_with(c, operands, moved_attributes(c));
}

// Every tensor gets the dimension; the operator works on the last ones and takes what is before.
Results by_last_dimensions(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) operands.push_back(stretched(c, i));
  return c.world.emit(c.op, c.attributes, operands);
}

Results no_rule() { return {}; }  // for these operands

// Reductions: without `dim`, over all dimensions but the added one.
Results reduction(const BatchedCall& c) {
  LiteralList attributes = moved_attributes(c);
  const int rank = c.operands[0].rank() - 1;
  if (rank == 0) return {c.operands[0]};
  for (ir::NamedLiteral& a : attributes)
    if (a.name == "dim" && a.value.is_none()) {
      std::vector<int64_t> all;
      for (int d = 1; d <= rank; ++d) all.push_back(d);
      a.value = Literal::list(all);
    }
  return emit_with(c, c.operands, attributes);
}

Results reshaped(const BatchedCall& c) {
  return {reshape(c.operands[0], with_batch(c, c.results[0].dims))};
}
Results expanded(const BatchedCall& c) {
  Value x = aligned(c, 0, c.results[0].rank());
  return {expand(x, with_batch(c, c.results[0].dims))};
}
Results permuted(const BatchedCall& c) {
  LiteralList attributes = attributes_of(c);
  const int rank = c.results[0].rank();
  for (ir::NamedLiteral& a : attributes) {
    if (a.name != "dims") continue;
    std::vector<Literal> dims{Literal(int64_t{0})};
    for (const Literal& item : std::get<std::vector<Literal>>(a.value.value)) {
      int64_t d = std::get<Dim>(item.value).value();
      dims.emplace_back((d < 0 ? d + rank : d) + 1);
    }
    a.value = dims;
  }
  return emit_with(c, c.operands, attributes);
}

// Of 0-d tensors a dimension is no dimension.
Results moved_unless_0d(const BatchedCall& c) {
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.operands[i].is_tensor() && c.operands[i].rank() - (c.batched[i] ? 1 : 0) == 0)
      return no_rule();
  return moved(c);
}

// The index picks along a dimension that all of the batch share.
Results shared_index(const BatchedCall& c) {
  if (c.batched[1]) return no_rule();
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (i != 1 && c.operands[i].is_tensor() && c.operands[i].rank() - (c.batched[i] ? 1 : 0) == 0)
      return no_rule();
    operands.push_back(i == 1 ? c.operands[i] : stretched(c, i));
  }
  return emit_with(c, operands, moved_attributes(c));
}

// Operands of one dimension become rows and columns, then batches are aligned.
Results product(const BatchedCall& c) {
  auto own_rank = [&](size_t i) { return c.operands[i].rank() - (c.batched[i] ? 1 : 0); };
  const int most = std::max({own_rank(0), own_rank(1), 2});
  SmallVector<Value, 2> sides;
  for (size_t i = 0; i < 2; ++i) {
    Value x = c.operands[i];
    if (own_rank(i) == 1) x = unsqueeze(x, i == 0 ? -2 : -1);
    if (c.batched[i] && x.rank() - 1 < most) {
      Dims dims{c.size};
      for (int d = x.rank() - 1; d < most; ++d) dims.push_back(1);
      dims.append(x.dims().begin() + 1, x.dims().end());
      x = reshape(x, dims);
    }
    sides.push_back(x);
  }
  Value y = c.world.emit(c.op, c.attributes, sides)[0];
  return {reshape(y, with_batch(c, c.results[0].dims))};
}

// The batch of images becomes longer: [B, N, C, ..] -> [B N, C, ..].
Results more_images(const BatchedCall& c) {
  if (!c.batched[0] || c.batched[1]) return no_rule();
  const Value& x = c.operands[0];
  Dims longer(x.dims().begin() + 1, x.dims().end());
  longer[0] = c.size * longer[0];
  SmallVector<Value, 2> operands{reshape(x, longer), c.operands[1]};
  Value y = c.world.emit(c.op, c.attributes, operands)[0];
  return {reshape(y, with_batch(c, c.results[0].dims))};
}

const std::unordered_map<std::string_view, Rule>& rules() {
  static const auto* table = [] {
    auto* t = new std::unordered_map<std::string_view, Rule>();
    for (Family family : {arithmetic_family(), rounding_family(), comparison_family(),
                          elementary_family(), special_family(), activation_family()})
      for (const Operator* op : family)
        if (op->bind) t->emplace(op->name, pointwise);
    for (std::string_view name : {"cast", "clone", "contiguous", "detach"})
      t->emplace(name, by_last_dimensions);
    for (std::string_view name : {"tril", "triu", "triangular_solve", "inverse", "cholesky", "det",
                                  "cofactor", "constant_pad_nd"})
      t->emplace(name, by_last_dimensions);
    for (std::string_view name : {"sum", "mean"}) t->emplace(name, reduction);
    for (std::string_view name : {"cumsum", "linear_recurrence", "flip", "transpose", "slice",
                                  "select", "diagonal", "diag_embed", "unfold", "unfold_sum", "cat",
                                  "stack", "gather", "scatter_add", "split", "chunk", "unbind"})
      t->emplace(name, moved_unless_0d);
    for (std::string_view name : {"reshape", "squeeze", "unsqueeze", "flatten"})
      t->emplace(name, reshaped);
    for (std::string_view name : {"index_select", "index_add"}) t->emplace(name, shared_index);
    for (std::string_view name : {"convolution", "convolution_input"})
      t->emplace(name, more_images);
    t->emplace("expand", expanded);
    t->emplace("permute", permuted);
    t->emplace("matmul", product);
    return t;
  }();
  return *table;
}

// One call for each index, the results stacked.
Results one_by_one(const BatchedCall& c) {
  if (!c.size.is_constant())
    throw Error(
        "{}: cannot be run for a batch of {}, a size that only a run knows; give it "
        "constant sizes",
        c.op.name, c.size.to_string());
  SmallVector<std::vector<Value>, 2> parts(c.results.size());
  for (int64_t b = 0; b < c.size.value(); ++b) {
    SmallVector<Value, 4> operands;
    for (size_t i = 0; i < c.operands.size(); ++i)
      operands.push_back(c.batched[i] ? emit("select", {c.operands[i]},
                                             {{"dim", int64_t{0}, {}}, {"index", b, {}}})
                                      : c.operands[i]);
    Results y = c.world.emit_results(c.op, c.attributes, operands, c.results.size());
    for (size_t r = 0; r < y.size(); ++r) parts[r].push_back(y[r]);
  }
  Results stacked;
  for (size_t r = 0; r < parts.size(); ++r)
    stacked.push_back(parts[r].empty()
                          ? full(c.world, with_batch(c, c.results[r].dims), 0, c.results[r].dtype)
                          : emit_all(c.world, "stack", parts[r], {{"dim", int64_t{0}, {}}})[0]);
  return stacked;
}

}  // namespace

SmallVector<Value, 2> emit_batched(const BatchedCall& call) {
  if (call.op.traits.opaque)
    throw Error("{}: its function takes no batch; take derivatives of one cotangent at a time",
                call.op.name);
  auto rule = rules().find(call.op.name);
  if (rule != rules().end())
    if (Results y = rule->second(call); !y.empty()) return y;
  return one_by_one(call);
}

}  // namespace gradus::ops
