// Elements or slices that differ. How many there are is a size that data decide; the archive has a
// name for it.
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// Rows [n, ..] that follow each other; `fresh` says which are no repetition of the one before.
struct Runs {
  Value fresh, starts;
  Dim rows, count;
};

Value ones_in_front(Call& c, const Dim& n, DType dtype) {
  return full(c.world(), {min(n, 1)}, 1, dtype);
}

Runs runs_of(Call& c, const Value& rows, const Dim& count) {
  const Dim n = rows.dims()[0];
  Value differ = ne(slice(rows, 0, 1, n), slice(rows, 0, 0, n - 1));
  while (differ.rank() > 1) differ = emit("any", {differ}, {{"dim", differ.rank() - 1}});
  Runs r{{}, {}, n, count};
  r.fresh = cat(std::array{ones_in_front(c, n, DType::boolean), differ}, 0);
  r.starts = select(emit("nonzero", {r.fresh}, {{"count", r.count}}), 1, 0);
  return r;
}

// The number of each row's run.
Value numbers_of(const Runs& r) {
  return emit("cumsum", {cast(r.fresh, DType::i64)}, {{"dim", 0}}) - num(int64_t{1});
}
Value lengths_of(Call& c, const Runs& r) {
  Value end = ones_in_front(c, r.count, DType::i64) * Value::number(r.rows);
  return cat(std::array{slice(r.starts, 0, 1, r.count), end}, 0) - r.starts;
}

// Where rows [n, m] come in the order of their elements, the first one first. `sort` keeps the
// order of equal ones.
Value order_of(Call& c, const Value& rows) {
  constexpr int64_t most = 256;
  need_dims(rows, 2, "a list of rows");
  const auto columns = rows.dims()[1].constant();
  if (!columns || *columns > most)
    c.fail("slices of more than {} elements are not supported", most);
  Value order = arange(c.world(), rows.dims()[0]);
  for (int64_t k = *columns; k-- > 0;) {
    Value key = ops::index_select(select(rows, 1, k), order, 0);
    order =
        ops::index_select(order, emit_all(c.world(), "sort", std::array{key}, {{"dim", 0}})[1], 0);
  }
  return order;
}

// Results: what differs, each row's number among it, how often each is there.
void give_runs(Call& c, const Value& values, const Runs& r, const Value& numbers) {
  if (c.results() > 3) c.fail("it has {} results; it gives 3", c.results());
  const Value rest[] = {numbers, lengths_of(c, r)};
  c.give(values);
  for (size_t i = 1; i < c.results(); ++i) {
    const bool told = c.wants(i) && !(c.result(i).sizes == Dims{0});
    if (told)
      c.give(rest[i - 1]);
    else if (c.wants(i))
      c.give(full(c.world(), {0}, 0, DType::i64));
    else
      c.give_nothing();
  }
}

// Each number at the place from which its row was taken.
Value put_back(Call& c, const Value& numbers, const Value& order) {
  Value nothing = full(c.world(), order.dims(), 0, DType::i64);
  return emit("scatter", {nothing, order, numbers}, {{"dim", 0}});
}

void unique(Call& c) {
  const Value x = c.x(), list = flat(x);
  auto sorted = emit_all(c.world(), "sort", std::array{list}, {{"dim", 0}});
  const Runs r = runs_of(c, sorted[0], size_at(c.result().sizes, 0));
  Value numbers = put_back(c, numbers_of(r), sorted[1]);
  give_runs(c, ops::index_select(sorted[0], r.starts, 0), r, reshape(numbers, x.dims()));
}

Ints with_in_front(int64_t dim, int rank) {
  Ints order{dim};
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) order.push_back(d);
  return order;
}

void unique_slices(Call& c) {
  const Value x = c.x();
  if (x.rank() == 0) c.fail("a tensor without dimensions has no slices");
  const int64_t dim = c.dim("dim", x.rank());
  Value front = permute(x, with_in_front(dim, x.rank()));
  const Dim n = front.dims()[0];
  Dims one(front.dims().begin() + 1, front.dims().end());
  Value rows = reshape(front, {n, ir::numel(one)});
  const bool sorts = c.op().starts_with("unique_dim.");
  Value order = sorts ? order_of(c, rows) : Value();
  if (sorts) rows = ops::index_select(rows, order, 0);
  const Runs r = runs_of(c, rows, size_at(c.result().sizes, dim));
  Value numbers = numbers_of(r);
  if (sorts) numbers = put_back(c, numbers, order);
  Value kept = sorts ? ops::index_select(order, r.starts, 0) : r.starts;
  give_runs(c, ops::index_select(x, kept, dim), r, numbers);
}

void unique_in_turn(Call& c) {
  if (c.given("dim")) return unique_slices(c);
  const Value x = c.x(), list = flat(x);
  const Runs r = runs_of(c, list, size_at(c.result().sizes, 0));
  give_runs(c, ops::index_select(list, r.starts, 0), r, reshape(numbers_of(r), x.dims()));
}

constexpr RuleEntry unique_table[] = {
    {"_unique", unique},
    {"_unique2", unique},
    {"unique_dim", unique_slices},
    {"unique_consecutive", unique_in_turn},
    {"unique_dim_consecutive", unique_slices},
};

}  // namespace

constinit const Rules unique_rules = unique_table;

}  // namespace gradus::pt2
