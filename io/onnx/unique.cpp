// Unique: rows that differ, by sorting. How many there are, data decide.
#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

Value chosen(const Value& x, const Value& index) {
  return emit("index_select", {x, index}, {{"dim", 0, {}}});
}

// The order of the rows of [n, m], by their first elements first; equal rows keep theirs.
Value order_of(Call& c, const Value& rows) {
  auto m = rows.dims()[1].constant();
  if (!m || *m > 1024) c.unsupported("Unique of rows of {} elements", rows.dims()[1].to_string());
  Value order = emit_all(c.world(), "arange", {}, {{"end", rows.dims()[0], {}}})[0];
  for (int64_t k = *m; k-- > 0;) {
    Value key = emit("select", {rows}, {{"dim", 1, {}}, {"index", k, {}}});
    order = chosen(order, emit("argsort", {chosen(key, order)}, {{"dim", 0, {}}}));
  }
  return order;
}

void unique(Call& c) {
  Value x = c.x();
  bool by_rows = c.has("axis");
  int axis = by_rows ? c.axis(c.attribute("axis", int64_t{0}), x.rank()) : 0;
  Value front = by_rows ? emit("movedim", {x}, {{"source", axis, {}}, {"destination", 0, {}}})
                        : reshape(x, {ir::numel(x.dims())});
  Dim n = front.dims()[0];
  Dims inner(front.dims().begin() + 1, front.dims().end());
  Value rows = reshape(front, {n, ir::numel(inner)});
  Value order = order_of(c, rows), sorted = chosen(rows, order);
  // A row begins a group if it differs from the one before; the first one does.
  Value differs =
      emit("any", {ne(slice(sorted, 0, 1, n), slice(sorted, 0, 0, n - Dim(1)))}, {{"dim", 1, {}}});
  Value one = ops::full(c.world(), {1}, 1, DType::boolean);
  Value begins = cat(std::vector{one, differs}, 0);
  Value group = emit("cumsum", {cast(begins, DType::i64)}, {{"dim", 0, {}}}) - num(int64_t{1});
  LiteralList count;
  if (!c.folding()) count.push_back({"count", c.importer().fresh_size(), {}});
  Value first =
      emit("select", {emit("nonzero", {begins}, count)}, {{"dim", 1, {}}, {"index", 0, {}}});
  Value indices = chosen(order, first);
  Value inverse = emit("scatter", {zeros_like(order), order, group}, {{"dim", 0, {}}});
  Value counts =
      emit("scatter_add", {zeros_like(indices), group, ones_like(group)}, {{"dim", 0, {}}});
  if (!c.attribute("sorted", int64_t{1})) {
    // In the order in which they first appear.
    Value appear = emit("argsort", {indices}, {{"dim", 0, {}}});
    inverse = chosen(emit("argsort", {appear}, {{"dim", 0, {}}}), inverse);
    indices = chosen(indices, appear);
    counts = chosen(counts, appear);
  }
  Value y = chosen(front, indices);
  if (by_rows) y = emit("movedim", {y}, {{"source", 0, {}}, {"destination", axis, {}}});
  for (const Value& v : {y, indices, inverse, counts}) c.give(v);
}

constexpr RuleEntry unique_table[] = {
    {"Unique", 11, unique},
};

}  // namespace

std::span<const RuleEntry> unique_rules() { return unique_table; }

}  // namespace gradus::onnx
