// Views: the same memory, looked at in another way.
#include <algorithm>
#include <numeric>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// The same elements in another shape.
View in_shape(const Dims& shape) {
  return {[shape](const Value& whole) { return reshape(whole, shape); },
          [](const Value& whole, const Value& part) { return reshape(part, whole.dims()); }};
}

Ints all_dims(int rank) {
  Ints dims(static_cast<size_t>(rank));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

View in_order(const Ints& order, int rank) {
  Ints sorted = order;
  std::ranges::sort(sorted);
  if (sorted != all_dims(rank))
    throw Error("[{}] is no order of {} dimensions", fmt::join(order, ", "), rank);
  if (std::ranges::is_sorted(order))
    return {[](const Value& whole) { return whole; },
            [](const Value&, const Value& part) { return part; }};
  Ints back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return {[order](const Value& whole) { return permute(whole, order); },
          [back](const Value&, const Value& part) { return permute(part, back); }};
}

View with_swapped(int rank, int64_t a, int64_t b) {
  Ints order = all_dims(rank);
  if (rank > 0) std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return in_order(order, rank);
}

// A part that an operator takes, and its counterpart that writes there.
View by_operators(const char* take, const char* put, const LiteralList& attributes,
                  const Dims& sizes) {
  return {[=](const Value& whole) { return with_sizes(emit(take, {whole}, attributes), sizes); },
          [=](const Value& whole, const Value& part) {
            return emit(put, {whole, part}, attributes);
          }};
}

// A part whose elements' places the same view of 0, 1, .. has.
View by_places(std::function<Value(const Value&)> take) {
  return {take, [take](const Value& whole, const Value& part) {
            return written_at(whole, take(places_in(whole)), part);
          }};
}

// Whether a tensor that lies so in memory is seen in another shape without a copy: dimensions that
// follow one another are one, which the new ones have to divide. ATen's computeStride.
bool is_view_in_shape(const TensorMeta& m, const Dims& shape) {
  if (m.strides.size() != m.sizes.size() || ir::numel(m.sizes) == Dim(0)) return true;
  if (m.sizes.empty()) return true;
  size_t left = shape.size();
  Dim base = m.strides.back(), old = 1, fresh = 1;
  for (size_t d = m.sizes.size(); d-- > 0;) {
    old = old * m.sizes[d];
    if (d > 0 && (m.sizes[d - 1] == Dim(1) || m.strides[d - 1] == old * base)) continue;
    while (left > 0 && (!(fresh == old) || shape[left - 1] == Dim(1)))
      fresh = fresh * shape[--left];
    if (!(fresh == old)) return false;
    if (d > 0) base = m.strides[d - 1];
    old = fresh = 1;
  }
  return left == 0;
}

bool lie_alike(const TensorMeta& a, const TensorMeta& b) {
  if (a.strides.size() != a.sizes.size() || b.strides.size() != a.strides.size()) return true;
  for (size_t d = 0; d < a.strides.size(); ++d)
    if (!(a.sizes[d] == Dim(1)) && !(a.strides[d] == b.strides[d])) return false;
  return true;
}

bool is_contiguous(const TensorMeta& m) {
  Dim next = 1;
  for (size_t d = std::min(m.strides.size(), m.sizes.size()); d-- > 0; next = next * m.sizes[d])
    if (!(m.sizes[d] == Dim(1)) && !(m.strides[d] == next)) return false;
  return true;
}

// What each operator shows.

View result_shape(Call& c) { return in_shape(c.result().sizes); }

View with_one_more(Call& c) {
  const int64_t dim = c.dim("dim", c.rank() + 1);
  return {[dim](const Value& whole) { return unsqueeze(whole, dim); },
          [](const Value& whole, const Value& part) { return reshape(part, whole.dims()); }};
}

// A dimension with a named size stays: torch.export has decided that it is not 1.
View without_ones(Call& c) {
  const Dims dims = c.x().dims();
  std::vector<bool> named(dims.size(), !c.given("dim"));
  if (c.given("dim") && !dims.empty())
    for (int64_t d : dims_of(c, "dim", c.rank())) named[static_cast<size_t>(d)] = true;
  Dims kept;
  for (size_t d = 0; d < dims.size(); ++d)
    if (!named[d] || !(dims[d] == Dim(1))) kept.push_back(dims[d]);
  return in_shape(kept);
}

View transposed_dims(Call& c) {
  const int rank = c.rank();
  return with_swapped(rank, c.dim("dim0", rank), c.dim("dim1", rank));
}
View swapped_axes(Call& c) {
  const int rank = c.rank();
  return with_swapped(rank, c.dim("axis0", rank), c.dim("axis1", rank));
}
// A list of numbers is its own transpose.
View matrix_transposed(Call& c) {
  const int rank = c.rank();
  return rank < 2 ? in_order(all_dims(rank), rank) : with_swapped(rank, rank - 2, rank - 1);
}
View reversed_dims(Call& c) {
  Ints order = all_dims(c.rank());
  std::ranges::reverse(order);
  return in_order(order, c.rank());
}
View permuted_dims(Call& c) { return in_order(dims_of(c, "dims", c.rank()), c.rank()); }

View moved_dims(Call& c) {
  const auto rank = static_cast<size_t>(c.rank());
  const Ints from = dims_of(c, "source", c.rank()), to = dims_of(c, "destination", c.rank());
  if (from.size() != to.size())
    c.fail("it names {} dimensions, and {} places for them", from.size(), to.size());
  if (rank == 0) return in_order({}, 0);
  Ints order(rank, -1);
  std::vector<bool> moved(rank);
  for (size_t i = 0; i < from.size(); ++i) {
    if (moved[static_cast<size_t>(from[i])] || order[static_cast<size_t>(to[i])] >= 0)
      c.fail("it names a dimension twice");
    order[static_cast<size_t>(to[i])] = from[i];
    moved[static_cast<size_t>(from[i])] = true;
  }
  size_t next = 0;
  for (int64_t& d : order) {
    if (d >= 0) continue;
    while (moved[next]) ++next;
    d = static_cast<int64_t>(next++);
  }
  return in_order(order, c.rank());
}

// By an index that the program computes.
View selected_by(const Value& index, const Value& x, int64_t dim) {
  const Value at = cast(index, DType::i64);
  const Value front =
      where(lt(at, num(int64_t{0})), at + Value::number(size_at(x.dims(), dim)), at);
  const Value place = reshape(front, {1});
  return by_places(
      [=](const Value& whole) { return squeeze(index_select(whole, place, dim), dim); });
}

View selected(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) c.fail("a tensor without dimensions has nothing to select from");
  const int64_t dim = c.dim("dim", x.rank());
  if (const Value at = c.x("index"); at.is_tensor()) return selected_by(at, x, dim);
  const Dim index = from_front(c.size("index"), size_at(x.dims(), dim));
  return by_operators("select", "select_scatter", {{"dim", dim}, {"index", index}},
                      c.result().sizes);
}

View sliced(Call& c) {
  return by_operators("slice", "slice_scatter", slice_attributes(c, c.x()), c.result().sizes);
}

// A tensor's start is one that is known.
Dim start_of(Call& c) {
  if (!c.is_tensor("start")) return c.size("start");
  const Tensor start = c.known("start");
  if (start.numel() != 1) c.fail("its start has {} elements; one is wanted", start.numel());
  return start.to_int64s()[0];
}

View narrowed(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) c.fail("a tensor without dimensions cannot be narrowed");
  const int64_t dim = c.dim("dim", x.rank());
  const Dim& n = size_at(x.dims(), dim);
  Dim start = start_of(c), length = c.size("length");
  start = start.is_constant() && start.value() < 0 ? n + start : from_front(start, n);
  LiteralList part{{"dim", dim}, {"start", start}, {"length", length}};
  LiteralList bounds{{"dim", dim}, {"start", start}, {"end", start + length}};
  return {[=](const Value& whole) { return emit("narrow", {whole}, part); },
          [=](const Value& whole, const Value& value) {
            return emit("slice_scatter", {whole, value}, bounds);
          }};
}

// Writing is for those alone that show each element once.
View widened(Call& c) {
  const Dims sizes = c.result().sizes;
  return {[sizes](const Value& whole) { return expand(whole, sizes); },
          [](const Value& whole, const Value& part) {
            if (!(ir::numel(part.dims()) == ir::numel(whole.dims())))
              throw Error("an expanded tensor is written, which shows an element several times");
            return reshape(part, whole.dims());
          }};
}

View on_diagonal(Call& c) {
  return by_operators("diagonal", "diagonal_scatter", diagonal_attributes(c, 0, 1, c.rank()),
                      c.result().sizes);
}

View in_windows(Call& c) {
  const int rank = c.rank();
  const Dims sizes = c.result().sizes;
  if (rank == 0) return in_shape(sizes);
  LiteralList attributes{
      {"dim", c.dim("dimension", rank)}, {"size", c.size("size")}, {"step", c.integer("step")}};
  return by_places(
      [=](const Value& whole) { return with_sizes(emit("unfold", {whole}, attributes), sizes); });
}

View all_of_it(Call&) {
  return {[](const Value& whole) { return whole; },
          [](const Value&, const Value& part) { return part; }};
}

View without_derivative(Call&) {
  return {[](const Value& whole) { return detach(whole); }, {}};
}

// An operator's ways: a view, a copy of that, and the operand itself seen so from now on.
using MakeView = View (*)(Call&);

template <MakeView make>
void view(Call& c) {
  c.give_view("self", make(c));
}
template <MakeView make>
void copied(Call& c) {
  c.give(make(c).part(c.x()));
}
template <MakeView make>
void view_from_now_on(Call& c) {
  c.view_again("self", make(c));
  c.give_same("self");
}

// A view where the operand lies so that it can be, else a copy.
void reshaped(Call& c) {
  is_view_in_shape(c.meta(), c.result().sizes) ? view<result_shape>(c) : copied<result_shape>(c);
}
void made_contiguous(Call& c) {
  lie_alike(c.meta(), c.result()) ? view<all_of_it>(c) : copied<all_of_it>(c);
}

// Nobody else has a detached tensor's memory, or all see that it is constant now.
void detach_in_place(Call& c) {
  if (is_floating(c.x().dtype())) c.write("self", detach(c.x()));
  c.give_same("self");
}

void bits_as(Call& c) {
  if (c.dtype() != c.x().dtype()) c.fail("a view of the bits as another dtype is not supported");
  view<all_of_it>(c);
}

void diagonal_of_matrices(Call& c) {
  const int rank = c.rank("A");
  c.give_view("A", by_operators("diagonal", "diagonal_scatter",
                                diagonal_attributes(c, -2, -1, rank), c.result().sizes));
}

// The strides count over memory, in which the operand's elements follow one another.
void by_strides(Call& c) {
  if (!is_contiguous(c.meta()))
    c.fail("as_strided of a tensor that is not contiguous is not supported");
  LiteralList attributes{{"size", Literal::list(c.sizes("size"))},
                         {"stride", Literal::list(c.sizes("stride"))},
                         {"offset", c.size("storage_offset", 0)}};
  c.give_view("self", by_places([attributes](const Value& whole) {
                return emit("as_strided", {whole}, attributes);
              }));
}

// Several parts along one dimension, that one node makes.

// Parts of a value, kept until they are asked for of another one.
struct Parts {
  Value whole;
  SmallVector<Value, 2> parts;

  const Value& part(size_t i, const Value& of, const char* op, const LiteralList& attributes) {
    if (whole.world != of.world || !(whole.operand == of.operand)) {
      parts = emit_all(*of.world, op, {&of, 1}, attributes);
      whole = of;
    }
    return parts[i];
  }
};

void give_parts(Call& c, int64_t dim, const Dims& sizes) {
  auto parts = std::make_shared<Parts>();
  LiteralList cut{{"sizes", Literal::list(sizes)}, {"dim", dim}};
  Dim start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    LiteralList bounds{{"dim", dim}, {"start", start}, {"end", start + sizes[i]}};
    c.give_view("self", {[=](const Value& whole) { return parts->part(i, whole, "split", cut); },
                         [=](const Value& whole, const Value& part) {
                           return emit("slice_scatter", {whole, part}, bounds);
                         }});
    start = start + sizes[i];
  }
}

// The sizes are what the parts have.
void split_dim(Call& c, int64_t dim) {
  if (c.rank() == 0) c.fail("a tensor without dimensions cannot be split");
  Dims sizes;
  for (size_t i = 0; i < c.results(); ++i) sizes.push_back(size_at(c.result(i).sizes, dim));
  give_parts(c, dim, sizes);
}
void split_up(Call& c) { split_dim(c, c.dim("dim", 0, c.rank())); }

// Between indices, which may go down: each part is a slice of its own.
void split_between(Call& c, int64_t dim, std::string_view name) {
  const Dims at = c.sizes(name);
  const Dim n = size_at(c.x().dims(), dim);
  for (size_t i = 0; i <= at.size(); ++i) {
    LiteralList bounds{{"dim", dim}};
    if (i > 0) bounds.push_back({"start", from_front(at[i - 1], n)});
    if (i < at.size()) bounds.push_back({"end", from_front(at[i], n)});
    c.give_view("self", by_operators("slice", "slice_scatter", bounds, c.result(i).sizes));
  }
}
void split_at_indices(Call& c) { split_between(c, c.dim("dim", 0, c.rank()), "indices"); }

template <int64_t dim>
void split_along(Call& c) {
  const int64_t d = dim == 1 && c.rank() == 1 ? 0 : dim;
  if (c.rank() <= d) c.fail("a tensor of {} dimensions cannot be split so", c.rank());
  c.given("indices") ? split_between(c, d, "indices") : split_dim(c, d);
}

void unbound(Call& c) {
  const int rank = c.rank();
  const int64_t dim = c.dim("dim", 0, rank);
  if (rank == 0) c.fail("a tensor without dimensions cannot be taken apart");
  auto parts = std::make_shared<Parts>();
  Dims ones(c.results(), 1);
  LiteralList cut{{"sizes", Literal::list(ones)}, {"dim", dim}};
  for (size_t i = 0; i < c.results(); ++i) {
    LiteralList at{{"dim", dim}, {"index", static_cast<int64_t>(i)}};
    c.give_view("self", {[=](const Value& whole) {
                           return squeeze(parts->part(i, whole, "split", cut), dim);
                         },
                         [=](const Value& whole, const Value& part) {
                           return emit("select_scatter", {whole, part}, at);
                         }});
  }
}

constexpr RuleEntry view_table[] = {
    {"view", view<result_shape>},
    {"view.dtype", bits_as},
    {"_unsafe_view", copied<result_shape>},
    {"view_copy", copied<result_shape>},
    {"reshape", reshaped},
    {"_reshape_alias", view<result_shape>},
    {"_reshape_copy", copied<result_shape>},
    {"reshape_as", reshaped},
    {"view_as", view<result_shape>},
    {"flatten", reshaped},
    {"ravel", reshaped},
    {"unflatten", view<result_shape>},
    {"atleast_1d", view<result_shape>},
    {"atleast_2d", view<result_shape>},
    {"atleast_3d", view<result_shape>},
    {"unsqueeze", view<with_one_more>},
    {"unsqueeze_", view_from_now_on<with_one_more>},
    {"unsqueeze_copy", copied<with_one_more>},
    {"squeeze", view<without_ones>},
    {"squeeze_", view_from_now_on<without_ones>},
    {"squeeze_copy", copied<without_ones>},
    {"transpose", view<transposed_dims>},
    {"transpose_", view_from_now_on<transposed_dims>},
    {"transpose_copy", copied<transposed_dims>},
    {"swapdims", view<transposed_dims>},
    {"swapdims_", view_from_now_on<transposed_dims>},
    {"swapaxes", view<swapped_axes>},
    {"swapaxes_", view_from_now_on<swapped_axes>},
    {"t", view<matrix_transposed>},
    {"t_", view_from_now_on<matrix_transposed>},
    {"t_copy", copied<matrix_transposed>},
    {"mT", view<matrix_transposed>},
    {"mH", view<matrix_transposed>},
    {"matrix_H", view<matrix_transposed>},
    {"adjoint", view<matrix_transposed>},
    {"numpy_T", view<reversed_dims>},
    {"permute", view<permuted_dims>},
    {"permute_copy", copied<permuted_dims>},
    {"movedim", view<moved_dims>},
    {"moveaxis", view<moved_dims>},
    {"select", view<selected>},
    {"select_copy", copied<selected>},
    {"slice", view<sliced>},
    {"slice_copy", copied<sliced>},
    {"narrow", view<narrowed>},
    {"narrow_copy", copied<narrowed>},
    {"expand", view<widened>},
    {"expand_as", view<widened>},
    {"expand_copy", copied<widened>},
    {"broadcast_to", view<widened>},
    {"diagonal", view<on_diagonal>},
    {"diagonal_copy", copied<on_diagonal>},
    {"linalg_diagonal", diagonal_of_matrices},
    {"unfold", view<in_windows>},
    {"unfold_copy", copied<in_windows>},
    {"as_strided", by_strides},
    {"alias", view<all_of_it>},
    {"alias_copy", copied<all_of_it>},
    {"positive", view<all_of_it>},
    {"contiguous", made_contiguous},
    {"conj", view<all_of_it>},
    {"_conj", view<all_of_it>},
    {"conj_physical", copied<all_of_it>},
    {"resolve_conj", view<all_of_it>},
    {"resolve_neg", view<all_of_it>},
    {"real", view<all_of_it>},
    {"detach", view<without_derivative>},
    {"detach_copy", copied<without_derivative>},
    {"detach_", detach_in_place},
    {"split", split_up},
    {"split_with_sizes", split_up},
    {"unsafe_split", split_up},
    {"unsafe_split_with_sizes", split_up},
    {"chunk", split_up},
    {"unsafe_chunk", split_up},
    {"tensor_split.sections", split_up},
    {"tensor_split.indices", split_at_indices},
    {"hsplit", split_along<1>},
    {"vsplit", split_along<0>},
    {"dsplit", split_along<2>},
    {"unbind", unbound},
};

}  // namespace

constinit const Rules view_rules = view_table;

}  // namespace gradus::pt2
