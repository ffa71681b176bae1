#include "io/pt2/search.h"

#include <bit>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// How often n elements can be halved until none is left.
int64_t halvings_of(const Dim& n) {
  constexpr int64_t of_any_size = 40;  // more elements fit into no memory
  return n.is_constant() ? std::bit_width(static_cast<uint64_t>(n.value())) : of_any_size;
}

// Rows in ascending order, read at places: of one row at any, of several row by row.
struct Sequences {
  Value rows;
  Value at(const Value& places) const {
    if (rows.rank() > 1) return ops::gather(rows, places, rows.rank() - 1);
    return reshape(ops::index_select(rows, flat(places), 0), places.dims());
  }
};

}  // namespace

// What is left between `low` and `high` is halved as ATen does it, so that NaN and rows in no order
// give its places.
Value place_in_order(const Value& rows, const Value& x, bool right) {
  const Dim n = rows.dims().back();
  Value low = full(*rows.world, x.is_number() ? Dims() : x.dims(), 0, DType::i64);
  Value high = low + Value::number(n);
  const Sequences sequences{pad_zeros(rows, rows.rank() - 1, 0, 1)};  // no place lies outside
  for (int64_t left = halvings_of(n); left > 0; --left) {
    Value middle = binary("bitwise_right_shift", low + high, num(int64_t{1}));
    Value element = sequences.at(middle);
    Value stops = right ? gt(element, x) : ge(element, x);
    Value below = logical_and(lt(low, high), logical_not(stops));
    low = where(below, middle + num(int64_t{1}), low);
    high = where(below, high, middle);
  }
  return low;
}

}  // namespace gradus::pt2
