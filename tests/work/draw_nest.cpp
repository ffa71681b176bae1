// Trials of nests. tests/fusion holds what compilers make of them against the same evaluator.
#include "fusion/nest.h"
#include "gradus/registry.h"
#include "tests/work/trial.h"

namespace gradus::work::test {

namespace {

// Of a dtype, with sizes that the loops are to have.
struct Drawing {
  Random& random;
  Trial& trial;
  DType dtype;
  Sizes shape;
  Loops loops = {};

  Nest& nest() { return loops.nest; }
  SmallVector<Walk, 4> strided() const {
    SmallVector<Walk, 4> walks;
    for (size_t d = 0; d < shape.size(); ++d) walks.push_back(Walk::strided);
    return walks;
  }
  void load(const Layout& l) {
    nest().loads.push_back({l.dtype, strided()});
    loops.frame.strides.push_back(l.strides);
    trial.operand(l, Values::unit);
  }
  // Rows from two operands.
  void load_parts() {
    const int64_t cut = random.between(1, shape[0] - 1);
    std::vector<Frame::Part> parts;
    for (auto [first, size] : {std::pair{int64_t{0}, cut}, {cut, shape[0] - cut}}) {
      Frame::Part part{Sizes(shape.size(), 0), shape, {}};
      part.first[0] = first;
      part.sizes[0] = size;
      const Layout l = random.layout(dtype, part.sizes);
      part.strides = l.strides;
      trial.operand(l, Values::unit);
      parts.push_back(std::move(part));
    }
    nest().loads.push_back({dtype, strided(), 2});
    loops.frame.strides.push_back(Sizes(shape.size(), 0));
    loops.frame.parts = {{}, std::move(parts)};
  }
  void load_at_index() {
    const int64_t count = random.between(1, 9), step = random.between(1, 3);
    load(random.layout(DType::i64, shape));
    const int64_t extent = Layout(DType::i64, shape, loops.frame.strides.back()).extent();
    for (int64_t i = 0; i < extent; ++i) trial.set(1, i, random.between(0, count - 1));
    nest().loads.push_back({dtype, strided(), 1, 1});
    loops.frame.strides.push_back(Sizes(shape.size(), 0));
    loops.frame.index_steps = {0, 0, step};
    trial.operand(dtype, (count - 1) * step + 1, Values::unit);
  }
  ValueNumber call(const char* name, ValueNumber a, ValueNumber b) {
    const ir::Operator* op = ops::find(name);
    nest().steps.push_back({{op, op->read({})}, {}, false, {a, b}, compute_of(dtype), dtype, {}});
    return last();
  }
  ValueNumber reduce(Reducer reducer, bool columns, ValueNumber x) {
    nest().steps.push_back({{}, reducer, columns, {x}, compute_of(dtype), dtype, {}});
    return last();
  }
  ValueNumber last() { return static_cast<ValueNumber>(nest().values() - 1); }
};

}  // namespace

// (x * y + 2) less the greatest of its row; what is stored is drawn, too.
template <>
void draw<Loops>(Random& random, Trial& trial) {
  const DType dtype = random.pick({DType::f64, DType::f32, DType::f16, DType::i64, DType::i8});
  Drawing d{random, trial, dtype, random.nonempty_shape(1, 3)};
  d.nest().rank = static_cast<int>(d.shape.size());
  d.nest().registers = random.pick({0, 256});
  d.load(random.layout(dtype, d.shape));
  const bool parts = d.shape.size() > 1 && d.shape[0] > 1 && random.chance(0.3);
  if (parts)
    d.load_parts();
  else if (random.chance(0.5))
    d.load_at_index();
  else
    d.load(random.layout(dtype, d.shape));
  const auto y = static_cast<ValueNumber>(d.nest().loads.size() - 1);
  d.loops.frame.sizes = d.shape;
  d.nest().numbers.push_back(ir::Number::of(int64_t{2}));
  ValueNumber z = d.call("add", d.call("mul", 0, y), y + 1);
  if (random.chance(0.5)) {
    const ValueNumber greatest = d.reduce(Reducer::max, false, z);
    d.nest().row_stores.push_back(greatest);
    z = d.call("sub", z, greatest);
  }
  d.nest().stores.push_back(z);
  if ((d.nest().reduces() || !parts) && d.shape.size() > 1 &&
      d.shape.back() <= fusion::most_row_size && random.chance(0.6))
    d.nest().row_size = d.shape.back();
  if (!parts && !d.nest().row_size && random.chance(0.3))
    d.nest().column_stores.push_back(d.reduce(Reducer::sum, true, z));
  fusion::verify(d.nest());
  fusion::check_frame(d.nest(), d.loops.frame);
  const int64_t count = numel(d.shape), columns = d.shape.back();
  trial.result(dtype, count);
  for (size_t i = 0; i < d.nest().row_stores.size(); ++i) trial.result(dtype, count / columns);
  for (size_t i = 0; i < d.nest().column_stores.size(); ++i) trial.result(dtype, columns);
  trial.work = std::move(d.loops);
}

}  // namespace gradus::work::test
