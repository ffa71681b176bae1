#include "io/pt2/shapes.h"

#include <algorithm>

namespace gradus::pt2 {

using namespace ops;

Dim from_front(const Dim& index, const Dim& n) {
  if (index.is_constant() || !(Dim(0) - index).known_nonnegative()) return index;
  return n + index;
}

const Dim& size_at(const Dims& sizes, int64_t dim) {
  if (dim < 0 || dim >= static_cast<int64_t>(sizes.size()))
    throw Error("there is no dimension {} of {}", dim, ir::to_string(sizes));
  return sizes[static_cast<size_t>(dim)];
}

Ints dims_of(Call& c, std::string_view name, int rank) {
  Ints dims = c.integers(name);
  const int64_t n = std::max(rank, 1);
  for (int64_t& d : dims) {
    if (d < -n || d >= n) c.fail("its argument '{}' names dimension {} of {}", name, d, rank);
    if (d < 0) d += n;
  }
  return dims;
}

Value with_sizes(const Value& x, const Dims& sizes) {
  return x.dims().size() == sizes.size() ? expand(x, sizes) : x;
}

LiteralList slice_attributes(Call& c, const Value& x) {
  const int64_t dim = c.dim("dim", 0, x.rank());
  if (x.rank() == 0) c.fail("a tensor without dimensions has no slices");
  const Dim& n = size_at(x.dims(), dim);
  LiteralList attributes{{"dim", dim}, {"step", c.integer("step", 1)}};
  if (c.given("start")) attributes.push_back({"start", from_front(c.size("start"), n)});
  if (c.given("end")) attributes.push_back({"end", from_front(c.size("end"), n)});
  return attributes;
}

LiteralList diagonal_attributes(Call& c, int64_t dim1, int64_t dim2, int rank) {
  return {{"offset", c.integer("offset", 0)},
          {"dim1", c.dim("dim1", dim1, rank)},
          {"dim2", c.dim("dim2", dim2, rank)}};
}

Value at_least(const Value& x, int rank) {
  if (x.rank() >= rank) return x;
  Dims dims = x.dims();
  if (rank == 3 && dims.size() == 2) {
    dims.push_back(1);
  } else if (rank == 3 && dims.size() == 1) {
    dims = {1, dims[0], 1};
  } else {
    while (dims.size() < static_cast<size_t>(rank)) dims.insert(dims.begin(), 1);
  }
  return reshape(x, dims);
}

void need_tensor(const Value& x, std::string_view what) {
  if (!x.is_tensor()) throw Error("{} is no tensor", what);
}

void need_dims(const Value& x, int least, std::string_view what) {
  need_tensor(x, what);
  if (x.rank() < least)
    throw Error("{} has {} dimensions; {} are wanted at least", what, x.rank(), least);
}

Value flat(const Value& x) { return reshape(x, {ir::numel(x.dims())}); }

Literal as_literal(const Value& number) {
  if (const Dim* d = std::get_if<Dim>(&number.operand)) return *d;
  const ir::Number* n = std::get_if<ir::Number>(&number.operand);
  if (!n) throw Error("a tensor stands where a number is wanted");
  return n->category == Category::floating ? Literal(n->floating) : Literal(n->integer);
}

Value places_in(const Value& x) {
  need_tensor(x, "what is seen by strides");
  return reshape(arange(*x.world, ir::numel(x.dims())), x.dims());
}

Value written_at(const Value& whole, const Value& places, const Value& part) {
  Value y = emit("scatter", {flat(whole), flat(places), flat(part)}, {{"dim", 0}});
  return reshape(y, whole.dims());
}

Value evenly_spaced(const Value& start, const Value& end, int64_t steps) {
  Value i = cast(arange(*start.world, steps), start.dtype());
  if (steps < 2) return i + start;
  const auto last = static_cast<double>(steps - 1);
  Value step = (end - start) / last;
  Value up = i * step + start, down = end - (last - i) * step;
  return where(lt(i, num(static_cast<double>(steps / 2))), up, down);
}

Value strided(Call& c, const Value& x) {
  return emit("as_strided", {x},
              {{"size", Literal::list(c.sizes("size"))},
               {"stride", Literal::list(c.sizes("stride"))},
               {"offset", c.size("storage_offset", 0)}});
}

}  // namespace gradus::pt2
