// Tensors put together from others: joined, repeated, padded, turned, written into.
#include <algorithm>

#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// The operands in the dtype of the result.
std::vector<Value> of_one_dtype(Call& c) {
  std::vector<Value> parts = c.tensors("tensors");
  if (parts.empty()) c.fail("it has no tensors");
  for (Value& v : parts) {
    if (!v.defined()) c.fail("one of its tensors is None");
    v = cast(v, c.result().dtype);
  }
  return parts;
}

// Empty lists go with every rank.
Value joined(const std::vector<Value>& parts, int64_t dim) {
  std::vector<Value> kept;
  for (const Value& v : parts)
    if (!(v.dims() == Dims{0})) kept.push_back(v);
  return kept.empty() ? parts[0] : cat(kept, dim);
}

void join(Call& c) {
  std::vector<Value> parts = of_one_dtype(c);
  c.give(joined(parts, c.dim("dim", 0, static_cast<int>(c.result().sizes.size()))));
}

void stack(Call& c) {
  std::vector<Value> parts = of_one_dtype(c);
  const int64_t dim = c.dim("dim", 0, parts[0].rank() + 1);
  for (Value& v : parts) v = unsqueeze(v, dim);
  c.give(cat(parts, dim));
}

// Each with at least so many dimensions, along `dim`.
void join_as(Call& c, int rank, int64_t dim) {
  std::vector<Value> parts = of_one_dtype(c);
  for (Value& v : parts) v = at_least(v, rank);
  c.give(joined(parts, rank == 1 && parts[0].rank() == 1 ? 0 : dim));
}
void stack_across(Call& c) { join_as(c, 1, 1); }
void stack_down(Call& c) { join_as(c, 2, 0); }
void stack_deep(Call& c) { join_as(c, 3, 2); }

void stack_columns(Call& c) {
  std::vector<Value> parts = of_one_dtype(c);
  for (Value& v : parts)
    if (v.rank() < 2) v = reshape(v, {ir::numel(v.dims()), 1});
  c.give(cat(parts, 1));
}

void on_block_diagonal(Call& c) {
  std::vector<Value> parts = of_one_dtype(c);
  Dim width = 0, at = 0;
  for (Value& v : parts) {
    v = at_least(v, 2);
    if (v.rank() != 2) c.fail("its tensors are matrices");
    width = width + v.dims()[1];
  }
  for (Value& v : parts) {
    Dim own = v.dims()[1];
    v = pad_zeros(v, 1, at, width - at - own);
    at = at + own;
  }
  c.give(cat(parts, 0));
}

// Grids. "xy" exchanges the first two dimensions.
std::vector<Value> grid_of(Call& c, bool exchanged) {
  std::vector<Value> axes = of_one_dtype(c);
  if (axes.size() > 64) c.fail("a grid of {} dimensions is not supported", axes.size());
  exchanged = exchanged && axes.size() > 1;
  if (exchanged) std::swap(axes[0], axes[1]);
  auto grids = emit_all(c.world(), "meshgrid", axes);
  std::vector<Value> out(grids.begin(), grids.end());
  if (exchanged) std::swap(out[0], out[1]);
  return out;
}

void meshgrid(Call& c) {
  for (Value& v : grid_of(c, c.text("indexing", "ij") == "xy")) c.give(v);
}

void cartesian_product(Call& c) {
  std::vector<Value> parts = grid_of(c, false);
  if (parts.size() == 1) return c.give(parts[0]);
  for (Value& v : parts) v = unsqueeze(flat(v), 1);
  c.give(cat(parts, 1));
}

void broadcast_all(Call& c) {
  std::vector<Value> parts = c.tensors("tensors");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) c.fail("one of its tensors is None");
    c.give(expand(parts[i], c.result(i).sizes));
  }
}

template <int rank>
void each_at_least(Call& c) {
  for (const Value& v : c.tensors("tensors")) c.give(at_least(v, rank));
}

void repeat(Call& c) {
  Value y = emit("repeat", {c.x()}, {{"repeats", Literal::list(c.sizes("repeats"))}});
  c.give(with_sizes(y, c.result().sizes));
}

void tile(Call& c) {
  Value y = emit("tile", {c.x()}, {{"dims", Literal::list(c.sizes("dims"))}});
  c.give(with_sizes(y, c.result().sizes));
}

// Each element so often as `repeats` says: where they come from, one number for each result.
Value sources_of(Call& c, const Value& repeats, const Dim& total) {
  Value ends = emit("cumsum", {cast(repeats, DType::i64)}, {{"dim", 0}});
  // Each end that lies at or before a place is an element further.
  Value marks = full(c.world(), {total + Dim(1)}, 0, DType::i64);
  marks = scatter_add(marks, ends, ones_like(ends), 0);
  return slice(emit("cumsum", {marks}, {{"dim", 0}}), 0, 0, total);
}

// So many of the result's sizes as the archive says, which may have a name for what is known.
Value named_as(Call& c, const Value& sources, const Dim& count) {
  if (sources.dims()[0] == count) return sources;
  Value all = full(c.world(), sources.dims(), 1, DType::boolean);
  Value places = emit_all(c.world(), "nonzero", std::array{all}, {{"count", count}})[0];
  return ops::index_select(sources, select(places, 1, 0), 0);
}

Value sources_of(Call& c, const std::string& repeats, int64_t dim) {
  if (c.given("output_size")) return sources_of(c, c.x(repeats), c.size("output_size"));
  Tensor known = c.known(repeats);
  Dim total = 0;
  for (int64_t n : known.to_int64s()) {
    if (n < 0) c.fail("a number of repeats is {}", n);
    total = total + Dim(n);
  }
  return named_as(c, sources_of(c, c.x(repeats), total), size_at(c.result().sizes, dim));
}

void repeat_by_tensor(Call& c) {
  Value x = c.x();
  const int64_t dim = c.given("dim") ? c.dim("dim", x.rank()) : 0;
  if (!c.given("dim") || x.rank() == 0) x = flat(x);
  Value repeats = c.x("repeats");
  if (repeats.rank() != 1) c.fail("its repeats are a list");
  // One number is for all.
  if (repeats.dims()[0] == Dim(1)) {
    Tensor times = c.known("repeats");
    return c.give(
        emit("repeat_interleave", {x}, {{"repeats", times.to_int64s()[0]}, {"dim", dim}}));
  }
  c.give(with_sizes(index_select(x, sources_of(c, "repeats", dim), dim), c.result().sizes));
}

void repeats_alone(Call& c) {
  c.give(cast(with_sizes(sources_of(c, "repeats", 0), c.result().sizes), c.result().dtype));
}

void repeat_each(Call& c) {
  Value x = c.x();
  LiteralList attributes{{"repeats", c.size("repeats")}};
  if (c.given("dim")) attributes.push_back({"dim", c.dim("dim", x.rank())});
  c.give(with_sizes(emit("repeat_interleave", {x}, attributes), c.result().sizes));
}

Value turned(const Value& x, const Ints& dims) {
  return dims.empty() ? x : emit("flip", {x}, {{"dims", Literal::list(dims)}});
}
void flip(Call& c) { c.give(turned(c.x(), dims_of(c, "dims", c.rank()))); }
void flip_columns(Call& c) { c.give(turned(c.x(), {1})); }
void flip_rows(Call& c) { c.give(turned(c.x(), {0})); }

void turn_by_90(Call& c) {
  Value x = c.x();
  Ints dims = c.given("dims") ? dims_of(c, "dims", x.rank()) : Ints{0, 1};
  if (dims.size() != 2 || x.rank() < 2) c.fail("it turns in two dimensions");
  const int64_t quarters = ((c.integer("k", 1) % 4) + 4) % 4;
  if (quarters == 0) return c.give(x);
  if (quarters == 2) return c.give(turned(x, dims));
  c.give(transpose(turned(x, {dims[quarters == 1 ? 1 : 0]}), dims[0], dims[1]));
}

void roll(Call& c) {
  LiteralList attributes{{"shifts", Literal::list(c.integers("shifts"))}};
  Ints dims = c.given("dims") ? dims_of(c, "dims", c.rank()) : Ints{};
  if (!dims.empty()) attributes.push_back({"dims", Literal::list(dims)});
  c.give(emit("roll", {c.x()}, attributes));
}

// Borders.
void pad_with(Call& c, const std::string& mode, const Dims& amounts, double value) {
  Value y =
      emit("pad", {c.x()}, {{"pad", Literal::list(amounts)}, {"mode", mode}, {"value", value}});
  c.give(with_sizes(y, c.result().sizes));
}
void pad(Call& c) { pad_with(c, c.text("mode", "constant"), c.sizes("pad"), c.number("value", 0)); }
void pad_constant(Call& c) { pad_with(c, "constant", c.sizes("pad"), c.number("value", 0)); }
void pad_circular(Call& c) { pad_with(c, "circular", c.sizes("pad"), 0); }
void pad_reflecting(Call& c) { pad_with(c, "reflect", c.sizes("padding"), 0); }
void pad_replicating(Call& c) { pad_with(c, "replicate", c.sizes("padding"), 0); }
void pad_by_number(Call& c) {
  constexpr const char* modes[] = {"reflect", "replicate", "circular", "constant"};
  const int64_t mode = c.integer("mode");
  if (mode < 0 || mode > 3) c.fail("there is no mode {}", mode);
  pad_with(c, modes[mode], c.sizes("pad"), c.number("value", 0));
}

void clone(Call& c) { c.give(c.x()); }
void copy(Call& c) {
  const ir::Type type = c.x().type;
  c.give(expand(cast(c.x("src"), type.dtype), type.dims));
}

void diff(Call& c) {
  Value x = c.x();
  const int64_t dim = c.dim("dim", -1, x.rank());
  std::vector<Value> parts{x};
  if (c.given("prepend")) parts.insert(parts.begin(), c.x("prepend"));
  if (c.given("append")) parts.push_back(c.x("append"));
  for (Value& v : parts) {
    need_tensor(v, "one of its operands");
    v = cast(v, c.result().dtype);
  }
  x = joined(parts, dim);
  for (int64_t n = c.integer("n", 1); n > 0; --n) {
    const Dim size = size_at(x.dims(), dim);
    Value later = slice(x, dim, 1, size), earlier = slice(x, dim, 0, size - Dim(1));
    if (size == Dim(0)) earlier = later;
    x = x.dtype() == DType::boolean ? ne(later, earlier) : later - earlier;
    if (c.integer("n", 1) > 1000) c.fail("it takes more than 1000 differences");
  }
  c.give(with_sizes(x, c.result().sizes));
}

// Columns of powers.
void powers(Call& c) {
  Value x = as_row(in_result_dtype(c, "x"));
  const Dims& sizes = c.result().sizes;
  const auto columns = sizes.empty() ? std::nullopt : sizes.back().constant();
  if (!columns || *columns > 1000)
    c.fail("how many columns it has must be a number, and not more than 1000; give it as N");
  std::vector<Value> parts;
  for (int64_t k = 0; k < *columns; ++k) parts.push_back(k == 0 ? ones_like(x) : parts.back() * x);
  // Of ATen's two operators the older one begins with the highest power.
  if (c.op() == "vander.default" && !c.flag("increasing", false)) std::ranges::reverse(parts);
  for (Value& v : parts) v = unsqueeze(v, x.rank());
  c.give(parts.empty() ? full(c.world(), sizes, 0, x.dtype()) : cat(parts, x.rank()));
}

void sum_to_size(Call& c) { c.give(sum_to(c.x(), c.result().sizes)); }

// All choices of r elements of a list whose size is known, in order.
void combinations(Call& c) {
  Value x = c.x();
  need_dims(x, 1, "its list");
  const int64_t r = c.integer("r", 2);
  const bool again = c.flag("with_replacement", false);
  const auto n = x.dims()[0].constant();
  constexpr size_t most = 1 << 20;
  if (!n || r < 1 || r > static_cast<int64_t>(most))
    c.fail("it wants a list of a known size, and r from 1 to {}", most);
  std::vector<int64_t> all, chosen;
  for (int64_t k = 0; k < r; ++k) chosen.push_back(again ? 0 : k);
  // The last place of a choice that can go on does, and those behind it follow.
  auto greatest = [&](size_t k) { return again ? *n - 1 : *n - r + static_cast<int64_t>(k); };
  while (chosen[0] <= greatest(0)) {
    all.insert(all.end(), chosen.begin(), chosen.end());
    if (all.size() > most) c.fail("more than {} numbers are not supported", most);
    size_t k = chosen.size();
    while (k > 1 && chosen[k - 1] == greatest(k - 1)) --k;
    const int64_t next = ++chosen[k - 1];
    for (; k < chosen.size(); ++k) chosen[k] = again ? next : chosen[k - 1] + 1;
  }
  Tensor places = Tensor::empty(DType::i64, Sizes{static_cast<int64_t>(all.size())});
  std::ranges::copy(all, places.mutable_data_as<int64_t>());
  Value index = emit_all(c.world(), "constant", {}, {{"value", places}})[0];
  const Dim rows = static_cast<int64_t>(all.size()) / r;
  c.give(with_sizes(reshape(index_select(x, index, 0), {rows, r}), c.result().sizes));
}

void triangle(Call& c) {
  c.give(emit(c.ours(), {c.x()}, {{"diagonal", c.integer("diagonal", 0)}}));
}

void embed_diagonal(Call& c) {
  c.give(emit("diag_embed", {c.x()}, diagonal_attributes(c, -2, -1, c.rank() + 1)));
}
void diag(Call& c) {
  const char* op = c.rank() == 1 ? "diag_embed" : "diagonal";
  c.give(emit(op, {c.x()}, {{"offset", c.integer("diagonal", 0)}}));
}
void diag_of_all(Call& c) {
  c.give(emit("diag_embed", {flat(c.x())}, {{"offset", c.integer("offset", 0)}}));
}

// Channels, and the pixels that they are made of.
void pixel_shuffle(Call& c) {
  Value y = emit("pixel_shuffle", {c.x()}, {{"r", c.integer("upscale_factor")}});
  c.give(with_sizes(y, c.result().sizes));
}

void pixel_unshuffle(Call& c) {
  Value x = c.x();
  const int64_t r = c.integer("downscale_factor");
  const int rank = x.rank();
  if (rank < 3 || r < 1) c.fail("it wants images [.., C, H, W], and a factor");
  Dims parts(x.dims().begin(), x.dims().end() - 2);
  for (size_t d : {x.dims().size() - 2, x.dims().size() - 1}) {
    parts.push_back(floor_div(x.dims()[d], r));
    parts.push_back(r);
  }
  Ints order;
  for (int d = 0; d < rank - 2; ++d) order.push_back(d);
  for (int d : {1, 3, 0, 2}) order.push_back(rank - 2 + d);
  c.give(reshape(permute(reshape(x, parts), order), c.result().sizes));
}

void shuffle_channels(Call& c) {
  Value x = c.x();
  const int64_t groups = c.integer("groups");
  if (x.rank() < 2 || groups < 1) c.fail("it wants channels in groups");
  Dims parts = x.dims();
  parts[1] = groups;
  parts.insert(parts.begin() + 2, floor_div(x.dims()[1], groups));
  c.give(reshape(transpose(reshape(x, parts), 1, 2), x.dims()));
}

// The operand with another part.
Value source(Call& c) { return cast(c.x("src"), c.x().dtype()); }

void write_selected(Call& c) {
  Value x = c.x();
  const int64_t dim = c.dim("dim", x.rank());
  const Dim index = from_front(c.size("index"), size_at(x.dims(), dim));
  c.give(emit("select_scatter", {x, source(c)}, {{"dim", dim}, {"index", index}}));
}
void write_slice(Call& c) {
  c.give(emit("slice_scatter", {c.x(), source(c)}, slice_attributes(c, c.x())));
}
void write_diagonal(Call& c) {
  c.give(emit("diagonal_scatter", {c.x(), source(c)}, diagonal_attributes(c, 0, 1, c.rank())));
}
void write_strided(Call& c) { c.give(written_at(c.x(), strided(c, places_in(c.x())), source(c))); }

constexpr RuleEntry shape_table[] = {
    {"cat", join},
    {"concat", join},
    {"concatenate", join},
    {"stack", stack},
    {"hstack", stack_across},
    {"vstack", stack_down},
    {"row_stack", stack_down},
    {"dstack", stack_deep},
    {"column_stack", stack_columns},
    {"block_diag", on_block_diagonal},
    {"meshgrid", meshgrid},
    {"cartesian_prod", cartesian_product},
    {"broadcast_tensors", broadcast_all},
    {"atleast_1d.Sequence", each_at_least<1>},
    {"atleast_2d.Sequence", each_at_least<2>},
    {"atleast_3d.Sequence", each_at_least<3>},
    {"repeat", repeat},
    {"tile", tile},
    {"repeat_interleave.self_int", repeat_each},
    {"repeat_interleave.self_Tensor", repeat_by_tensor},
    {"repeat_interleave.Tensor", repeats_alone},
    {"flip", flip},
    {"fliplr", flip_columns},
    {"flipud", flip_rows},
    {"rot90", turn_by_90},
    {"roll", roll},
    {"pad", pad},
    {"constant_pad_nd", pad_constant},
    {"_pad_circular", pad_circular},
    {"_pad_enum", pad_by_number},
    {"reflection_pad1d", pad_reflecting},
    {"reflection_pad2d", pad_reflecting},
    {"reflection_pad3d", pad_reflecting},
    {"replication_pad1d", pad_replicating},
    {"replication_pad2d", pad_replicating},
    {"replication_pad3d", pad_replicating},
    {"clone", clone},
    {"copy", copy},
    {"diff", diff},
    {"vander", powers},
    {"linalg_vander", powers},
    {"sum_to_size", sum_to_size},
    {"combinations", combinations},
    {"tril", triangle},
    {"triu", triangle},
    {"diag_embed", embed_diagonal},
    {"diag", diag},
    {"diagflat", diag_of_all},
    {"pixel_shuffle", pixel_shuffle},
    {"pixel_unshuffle", pixel_unshuffle},
    {"channel_shuffle", shuffle_channels},
    {"native_channel_shuffle", shuffle_channels},
    {"select_scatter", write_selected},
    {"slice_scatter", write_slice},
    {"diagonal_scatter", write_diagonal},
    {"as_strided_scatter", write_strided},
};

}  // namespace

constinit const Rules shape_rules = shape_table;

}  // namespace gradus::pt2
