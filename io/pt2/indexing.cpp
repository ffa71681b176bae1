// Reading and writing at places that tensors name. A mask picks a number of elements that data
// decide; the archive has a name for it.
#include <algorithm>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

bool is_mask(const Value& v) { return v.is_tensor() && v.dtype() == DType::boolean; }

// Index tensors as the operators take them; bytes are masks, as of old.
std::vector<Value> indices_of(Call& c) {
  std::vector<Value> indices = c.tensors("indices");
  for (Value& v : indices) {
    if (!v.is_tensor()) continue;
    if (v.dtype() == DType::u8) v = cast(v, DType::boolean);
    if (!is_mask(v) && v.dtype() != DType::i32) v = cast(v, DType::i64);
    if (is_mask(v) && v.rank() == 0) c.fail("a mask without dimensions is not supported");
  }
  while (!indices.empty() && !indices.back().defined()) indices.pop_back();
  return indices;
}

// The dimension of x[indices] that a mask counts: the last one of the indices' common shape.
size_t counted_dim(const std::vector<Value>& indices) {
  size_t front = 0, common = 0;
  int blocks = 0;
  bool before = false;
  for (size_t i = 0; i < indices.size(); ++i) {
    const bool here = indices[i].defined();
    if (here && !before && blocks++ == 0) front = i;
    if (here) common = std::max(common, is_mask(indices[i]) ? 1 : indices[i].dims().size());
    before = here;
  }
  // Indices with others between them stand in front.
  return (blocks > 1 ? 0 : front) + common - 1;
}

bool has_mask(const std::vector<Value>& indices) { return std::ranges::any_of(indices, is_mask); }

void index(Call& c) {
  Value x = c.x();
  std::vector<Value> indices = indices_of(c), operands{x};
  if (indices.empty()) return c.give(x);
  LiteralList attributes;
  const Dims& sizes = c.result().sizes;
  if (has_mask(indices))
    attributes.push_back({"count", size_at(sizes, static_cast<int64_t>(counted_dim(indices)))});
  operands.insert(operands.end(), indices.begin(), indices.end());
  c.give(with_sizes(emit_all(c.world(), "index", operands, attributes)[0], sizes));
}

// One mask, and values that are the same wherever it is true: nothing has to be counted.
// [.., mask's dimensions.., ..] of x against [.., 1, ..] of the values.
std::optional<Value> masked(Call& c, const Value& x, const std::vector<Value>& indices,
                            const Value& values) {
  size_t lead = 0;
  while (!indices[lead].defined()) ++lead;
  if (lead + 1 != indices.size() || !is_mask(indices[lead])) return std::nullopt;
  const auto covered = indices[lead].dims().size();
  if (lead + covered > x.dims().size()) c.fail("its mask has too many dimensions");
  const size_t after = x.dims().size() - lead - covered;
  // Sizes of the values, the last ones first: those after the mask, its count, those before it.
  Dims own = values.dims();
  if (own.size() > after && !(own[own.size() - 1 - after] == Dim(1))) return std::nullopt;
  Dims wide(x.dims().size(), 1);
  for (size_t d = 0; d < after && d < own.size(); ++d)
    wide[wide.size() - 1 - d] = own[own.size() - 1 - d];
  for (size_t d = after + 1; d < own.size(); ++d) {
    const size_t at = lead + after - d;  // counted from the mask to the front
    if (d > after + lead) return std::nullopt;
    wide[at] = own[own.size() - 1 - d];
  }
  Dims mask(x.dims().size(), 1);
  for (size_t d = 0; d < covered; ++d) mask[lead + d] = x.dims()[lead + d];
  Value where_true = reshape(indices[lead], mask), written = reshape(values, wide);
  if (!c.flag("accumulate", false)) return where(where_true, written, x);
  return x + keep_where(expand(where_true, x.dims()), expand(written, x.dims()));
}

void index_put(Call& c) {
  Value x = c.x(), values = cast(c.x("values"), x.dtype());
  std::vector<Value> indices = indices_of(c), operands{x, values};
  LiteralList attributes{{"accumulate", c.flag("accumulate", false)}};
  if (indices.empty()) {
    Value all = expand(values, x.dims());
    return c.give(c.flag("accumulate", false) ? x + all : all);
  }
  if (has_mask(indices)) {
    if (auto y = masked(c, x, indices, values)) return c.give(*y);
    // From the end, since the values may have fewer dimensions than what is picked.
    int64_t picked = x.rank();
    size_t common = 0;
    for (const Value& v : indices)
      if (v.defined()) {
        picked -= is_mask(v) ? v.rank() : 1;
        common = std::max(common, is_mask(v) ? 1 : v.dims().size());
      }
    const int64_t from_end =
        picked + static_cast<int64_t>(common) - static_cast<int64_t>(counted_dim(indices));
    if (from_end > values.rank()) c.fail("how many elements its mask picks is not known");
    attributes.push_back({"count", size_at(values.dims(), values.rank() - from_end)});
  }
  operands.insert(operands.end(), indices.begin(), indices.end());
  c.give(emit_all(c.world(), "index_put", operands, attributes)[0]);
}

// Operators along one dimension. A tensor without dimensions is one of one element.

struct Along {
  Value x;
  int64_t dim;
  Dims dims;  // of the operand as it was
  explicit Along(Call& c) : x(c.x()), dim(c.dim("dim", x.rank())), dims(x.dims()) {
    x = at_least(x, 1);
  }
  Value listed(const Value& v) const { return v.is_tensor() ? at_least(v, 1) : v; }
  const Dim& size() const { return size_at(x.dims(), dim); }
};

Value whole_index(const Value& v) { return v.dtype() == DType::i32 ? v : cast(v, DType::i64); }

// Where the operator takes no negative indices.
Value counted_from_front(const Value& index, const Dim& n) {
  return where(lt(index, num(int64_t{0})), index + Value::number(n), index);
}

void index_select(Call& c) {
  Along a(c);
  Value y = ops::index_select(a.x, whole_index(a.listed(c.x("index"))), a.dim);
  c.give(reshape(y, c.result().sizes));
}

// The operand with what an operator of ours writes to it.
void write_along(Call& c) {
  Along a(c);
  Value source = a.listed(cast(c.x("source"), a.x.dtype()));
  LiteralList attributes{{"dim", a.dim}};
  if (c.given("alpha")) {
    const Value alpha = c.x("alpha");
    if (!(alpha.constant() && *alpha.constant() == 1)) source = cast(source * alpha, a.x.dtype());
  }
  Value y = emit(c.ours(), {a.x, whole_index(a.listed(c.x("index"))), source}, attributes);
  c.give(reshape(y, a.dims));
}

// By a mask, so that a value counts once at a place that is named twice.
void index_fill(Call& c) {
  Along a(c);
  Value index = counted_from_front(whole_index(a.listed(c.x("index"))), a.size());
  Value zeros = full(c.world(), {a.size()}, 0, DType::i64);
  Value named = ne(emit("scatter", {zeros, index, num(int64_t{1})}, {{"dim", 0}}), num(int64_t{0}));
  Dims along(a.x.dims().size() - static_cast<size_t>(a.dim), 1);
  along[0] = a.size();
  Value value = as(c.x("value"), a.x.dtype());
  c.give(reshape(cast(where(reshape(named, along), value, a.x), a.x.dtype()), a.dims));
}

void gather(Call& c) {
  Along a(c);
  // Without indices any number of dimensions goes.
  if (ir::numel(c.result().sizes) == Dim(0))
    return c.give(full(c.world(), c.result().sizes, 0, a.x.dtype()));
  Value y = ops::gather(a.x, whole_index(a.listed(c.x("index"))), a.dim);
  c.give(reshape(y, c.result().sizes));
}

// Numbers as a tensor of the index's shape.
Value scattered(Call& c, const Along& a, const Value& index) {
  if (!c.given("value")) return a.listed(cast(c.x("src"), a.x.dtype()));
  return cast(full(c.world(), index.dims(), 0, a.x.dtype()) + c.x("value"), a.x.dtype());
}

void scatter_by(Call& c, const std::string& reduction) {
  Along a(c);
  Value index = whole_index(a.listed(c.x("index")));
  Value src = scattered(c, a, index);
  if (index.rank() == 1 && index.dims()[0] == Dim(0)) return c.give(c.x());
  LiteralList attributes{{"dim", a.dim}};
  const char* op = reduction.empty() ? "scatter" : "scatter_add";
  if (!reduction.empty() && (reduction != "sum" || !c.flag("include_self", true))) {
    op = "scatter_reduce";
    attributes.push_back({"reduce", reduction});
    attributes.push_back({"include_self", c.flag("include_self", true)});
  }
  c.give(reshape(emit(op, {a.x, index, src}, attributes), a.dims));
}
void scatter(Call& c) { scatter_by(c, ""); }
void scatter_add(Call& c) { scatter_by(c, "sum"); }
void scatter_reduce(Call& c) { scatter_by(c, c.text("reduce", "")); }
// An older name of each.
void scatter_with(Call& c) {
  const std::string reduce = c.text("reduce", "");
  if (reduce != "add" && reduce != "multiply") c.fail("there is no reduction '{}'", reduce);
  scatter_by(c, reduce == "add" ? "sum" : "prod");
}

// A whole slice goes to each place of a list.
void index_reduce(Call& c) {
  Along a(c);
  Value index = whole_index(a.listed(c.x("index")));
  Value source = a.listed(cast(c.x("source"), a.x.dtype()));
  if (source.rank() != a.x.rank() || index.rank() != 1)
    c.fail("its operand has {} dimensions, its source {} and its index {}", a.x.rank(),
           source.rank(), index.rank());
  Dims along(source.dims().size() - static_cast<size_t>(a.dim), 1);
  along[0] = index.dims()[0];
  Value places = expand(reshape(index, along), source.dims());
  Value y = emit("scatter_reduce", {a.x, places, source},
                 {{"dim", a.dim},
                  {"reduce", c.text("reduce", "")},
                  {"include_self", c.flag("include_self", true)}});
  c.give(reshape(y, a.dims));
}

// Masks and flat places.

// x and a mask in their common shape.
std::pair<Value, Value> with_mask(Call& c) {
  Value x = c.x(), mask = cast(c.x("mask"), DType::boolean);
  const Value& longer = x.rank() >= mask.rank() ? x : mask;
  const Value& shorter = x.rank() >= mask.rank() ? mask : x;
  Dims common = longer.dims();
  const size_t lead = common.size() - shorter.dims().size();
  for (size_t d = lead; d < common.size(); ++d)
    if (common[d] == Dim(1)) common[d] = shorter.dims()[d - lead];
  return {expand(x, common), expand(mask, common)};
}

void masked_scatter(Call& c) {
  auto [x, mask] = with_mask(c);
  c.give(emit("masked_scatter", {x, mask, cast(c.x("source"), x.dtype())}));
}
void masked_select(Call& c) {
  auto [x, mask] = with_mask(c);
  c.give(emit("masked_select", {x, mask}, {{"count", size_at(c.result().sizes, 0)}}));
}

void nonzero(Call& c) {
  Value x = c.x();
  Value y = emit("nonzero", {at_least(x, 1)}, {{"count", size_at(c.result().sizes, 0)}});
  // Of a tensor without dimensions there are no places to say.
  c.give(x.rank() == 0 ? slice(y, 1, 0, 0) : y);
}
void nonzero_by_dim(Call& c) {
  Value x = c.x(c.given("condition") ? "condition" : "self");
  Value y = emit("nonzero", {at_least(x, 1)}, {{"count", size_at(c.result().sizes, 0)}});
  for (size_t d = 0; d < c.results(); ++d) c.give(select(y, 1, static_cast<int64_t>(d)));
}

// So many places as are wanted, in order; after the last one there is a number.
void nonzero_static(Call& c) {
  Value x = c.x();
  const Dim size = c.size("size");
  Value fill = num(c.integer("fill_value", -1));
  Value truth = flat(x.dtype() == DType::boolean ? x : ne(x, num(int64_t{0})));
  Value rank = emit("cumsum", {cast(truth, DType::i64)}, {{"dim", 0}}) - num(int64_t{1});
  Value wanted = logical_and(truth, lt(rank, Value::number(size)));
  // What is not wanted goes to one place more.
  Value slot = where(wanted, rank, Value::number(size));
  Value none = full(c.world(), {size + Dim(1)}, -1, DType::i64);
  Value found = emit("scatter", {none, slot, arange(c.world(), truth.dims()[0])}, {{"dim", 0}});
  found = slice(found, 0, 0, size);
  std::vector<Value> columns;
  Value rest = found;
  for (size_t d = x.dims().size(); d-- > 0;) {
    Value n = Value::number(max(x.dims()[d], 1));
    columns.push_back(unsqueeze(binary("remainder", rest, n), 1));
    rest = binary("floor_divide", rest, n);
  }
  std::ranges::reverse(columns);
  if (columns.empty()) return c.give(full(c.world(), c.result().sizes, 0, DType::i64));
  c.give(where(lt(unsqueeze(found, 1), num(int64_t{0})), fill, cat(columns, 1)));
}

void take(Call& c) { c.give(emit("take", {c.x(), whole_index(c.x("index"))})); }
void put(Call& c) {
  Value x = c.x(), source = cast(c.x("source"), x.dtype());
  Value index = whole_index(c.x("index"));
  Value y = emit("index_put", {flat(x), reshape(source, index.dims()), index},
                 {{"accumulate", c.flag("accumulate", false)}});
  c.give(reshape(y, x.dims()));
}

void take_along(Call& c) {
  Value x = c.x(), index = whole_index(c.x("indices"));
  if (!c.given("dim")) return c.give(ops::gather(flat(x), flat(index), 0));
  const int64_t dim = c.dim("dim", x.rank());
  if (x.rank() != index.rank() || x.rank() == 0)
    c.fail("operand and indices have {} and {} dimensions", x.rank(), index.rank());
  index = counted_from_front(index, size_at(x.dims(), dim));
  Dims of_x = x.dims(), of_index = index.dims();
  for (size_t d = 0; d < of_x.size(); ++d) {
    if (static_cast<int64_t>(d) == dim) continue;
    Dim& mine = of_x[d];
    Dim& theirs = of_index[d];
    (mine == Dim(1) ? mine : theirs) = mine == Dim(1) ? theirs : mine;
  }
  c.give(ops::gather(expand(x, of_x), expand(index, of_index), dim));
}

// Rows of a table.

void embedding(Call& c) {
  if (c.flag("scale_grad_by_freq", false)) c.fail("scale_grad_by_freq is not supported");
  Value weight = c.x("weight");
  LiteralList attributes;
  const int64_t padding = c.integer("padding_idx", -1);
  if (padding >= 0) attributes.push_back({"padding_idx", padding});
  c.give(emit("embedding", {weight, whole_index(c.x("indices"))}, attributes));
}

// Bags of rows: bag b has the indices from its offset up to the next one's.
struct Bags {
  Value indices, offsets, of;  // `of`: the bag of each index
  Dim count;
  Value kept;  // undefined, or which indices are no padding
};

Bags bags_of(Call& c) {
  Bags b;
  b.indices = whole_index(c.x("indices"));
  b.offsets = cast(c.x("offsets"), DType::i64);
  if (b.indices.rank() != 1 || b.offsets.rank() != 1) c.fail("indices and offsets are lists");
  b.count = b.offsets.dims()[0];
  if (c.flag("include_last_offset", false)) {
    b.count = b.count - Dim(1);
    b.offsets = slice(b.offsets, 0, 0, b.count);
  }
  const Dim n = b.indices.dims()[0];
  Value marks = full(c.world(), {n + Dim(1)}, 0, DType::i64);
  marks = ops::scatter_add(marks, b.offsets, ones_like(b.offsets), 0);
  b.of = slice(emit("cumsum", {marks}, {{"dim", 0}}), 0, 0, n) - num(int64_t{1});
  const int64_t padding = c.integer("padding_idx", -1);
  if (padding >= 0) b.kept = ne(b.indices, num(padding));
  return b;
}

// What is added to each bag.
Value added_up(Call& c, const Bags& b, const Value& rows) {
  Dims sizes = rows.dims();
  sizes[0] = b.count;
  return emit("index_add", {full(c.world(), sizes, 0, rows.dtype()), b.of, rows}, {{"dim", 0}});
}

// Of equal bags, whose offsets are known.
Value greatest_of_bags(Call& c, const Bags& b, const Value& weight) {
  if (b.kept.defined()) c.fail("mode 'max' with padding is not supported");
  const std::vector<int64_t> offsets = c.known("offsets").to_int64s();
  auto n = b.indices.dims()[0].constant();
  const auto bags = b.count.constant();
  if (!n || !bags || *bags == 0 || *n % *bags != 0) c.fail("mode 'max' wants bags of one size");
  for (int64_t i = 0; i < *bags; ++i)
    if (offsets[static_cast<size_t>(i)] != i * (*n / *bags))
      c.fail("mode 'max' wants bags of one size");
  Value index = reshape(b.indices, {*bags, *n / *bags});
  return emit("embedding_bag", {weight, index}, {{"mode", "max"}});
}

void embedding_bag(Call& c) {
  if (c.flag("scale_grad_by_freq", false)) c.fail("scale_grad_by_freq is not supported");
  Value weight = c.x("weight");
  Bags b = bags_of(c);
  const int64_t mode = c.integer("mode", 0);
  if (mode < 0 || mode > 2) c.fail("there is no mode {}", mode);
  if (mode == 2) return c.give(greatest_of_bags(c, b, weight));
  LiteralList attributes;
  const int64_t padding = c.integer("padding_idx", -1);
  if (padding >= 0) attributes.push_back({"padding_idx", padding});
  Value rows = emit("embedding", {weight, b.indices}, attributes);
  if (c.given("per_sample_weights")) rows = rows * unsqueeze(c.x("per_sample_weights"), 1);
  if (b.kept.defined()) rows = where(unsqueeze(b.kept, 1), rows, num(0.0));
  Value y = added_up(c, b, rows);
  if (mode == 1) {
    Value one = b.kept.defined() ? cast(b.kept, y.dtype())
                                 : full(c.world(), b.indices.dims(), 1, y.dtype());
    Value counts = binary("maximum", added_up(c, b, one), num(1.0));
    y = y / unsqueeze(counts, 1);
  }
  c.give(y);
}

constexpr RuleEntry indexing_table[] = {
    {"index", index},
    {"_unsafe_index", index},
    {"index_put", index_put},
    {"_unsafe_index_put", index_put},
    {"_index_put_impl", index_put},
    {"index_select", index_select},
    {"index_add", write_along, "index_add"},
    {"index_copy", write_along, "index_copy"},
    {"index_fill", index_fill},
    {"gather", gather},
    {"scatter", scatter},
    {"scatter.reduce", scatter_with},
    {"scatter.value_reduce", scatter_with},
    {"scatter_add", scatter_add},
    {"scatter_reduce", scatter_reduce},
    {"index_reduce", index_reduce},
    {"masked_scatter", masked_scatter},
    {"masked_select", masked_select},
    {"nonzero", nonzero},
    {"nonzero_static", nonzero_static},
    {"nonzero_numpy", nonzero_by_dim},
    {"where.default", nonzero_by_dim},
    {"argwhere", nonzero},
    {"take", take},
    {"put", put},
    {"take_along_dim", take_along},
    {"embedding", embedding},
    {"embedding_bag", embedding_bag},
    {"_embedding_bag", embedding_bag},
    {"_embedding_bag_forward_only", embedding_bag},
};

}  // namespace

constinit const Rules indexing_rules = indexing_table;

}  // namespace gradus::pt2
