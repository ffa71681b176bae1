#include "io/onnx/loops.h"

#include <algorithm>

#include <onnx/onnx_pb.h>

#include "io/onnx/model.h"
#include "io/onnx/region.h"
#include "ops/control_flow.h"
#include "ops/selection.h"

namespace gradus::onnx {

using namespace ops;

namespace {

constexpr int64_t most_trips = 1'000'000'000;

const ir::Type i64_type(DType::i64, {}), bool_type(DType::boolean, {});

const ItemPtr& plain(Call& c, const ItemPtr& item, std::string_view what) {
  if (!item || !item->is_tensor()) c.unsupported("{} by data whose {} is no tensor", c.op(), what);
  if (item->narrow) c.unsupported("{} by data whose {} has a narrow type", c.op(), what);
  return item;
}

Value scalar(const Value& v) { return v.rank() == 0 ? v : reshape(v, {}); }

std::string graph_name(Call& c, const char* attribute) { return c.graph(attribute).name(); }

std::string name_of_input(const ::onnx::GraphProto& graph, size_t i) {
  const auto at = static_cast<int>(i);
  return at < graph.input_size() ? graph.input(at).name() : "";
}

// What `emit` gives. A type that does not fit is what a model may have, and a program not.
SmallVector<Value, 2> emit_loop(Call& c, const Operator& op, const Attributes& attributes,
                                std::span<const Value> operands) {
  try {
    return c.importer().program().world().emit(op, attributes, operands);
  } catch (const Error& e) {
    throw Unsupported(fmt::format("as a loop or branch of the program: {}", e.bare()),
                      fmt::format("{} by data whose types change", c.op()));
  }
}

std::vector<Value> values_of(Call& c, std::span<const ItemPtr> items, std::string_view what) {
  std::vector<Value> values;
  for (const ItemPtr& item : items)
    values.push_back(c.importer().in_program(*plain(c, item, what)));
  return values;
}

void append_values(Call& c, std::span<const ir::ValueId> ids, std::vector<Value>& operands) {
  for (ir::ValueId v : ids) operands.push_back(c.importer().program().world().value(v));
}

Value number(Call& c, int64_t n) {
  return full(c.importer().program().world(), {}, static_cast<double>(n), DType::i64);
}

// ---- Loop ----

// How many rounds a Loop takes at most: known now, by a size, by data, or as many as there are.
struct Trips {
  std::optional<Dim> size;
  Value data;  // i64[], where only data say
};

Trips trips_of(Call& c) {
  if (!c.given(0)) return {};
  const ItemPtr& item = plain(c, c.item(0), "trip count");
  if (const Tensor known = c.importer().known(*item); known.defined()) {
    const int64_t n = std::max<int64_t>(c.integer(0, "trip count"), 0);
    return {Dim(n), {}};
  }
  if (item->sizes && item->sizes->size() == 1) return {max((*item->sizes)[0], Dim(0)), {}};
  return {std::nullopt, scalar(cast(c.x(0), DType::i64))};
}

// The body: from the round's number, the condition where it is carried, and the states.
struct Body {
  Region region;
  bool ends_by_count = false;  // its condition always holds
};

Body record_body(Call& c, std::span<const Value> states) {
  Importer& importer = c.importer();
  const auto& graph = c.graph("body");
  Value round = region_input(importer, i64_type, name_of_input(graph, 0)),
        go = region_input(importer, bool_type, name_of_input(graph, 1));
  std::vector<ir::ValueId> inputs{ir::GraphWorld::id_of(round), ir::GraphWorld::id_of(go)};
  // A round is taken only where the condition holds.
  std::vector<ItemPtr> in{Item::of(round), Item::of(Tensor::scalar(DType::boolean, true))};
  for (const Value& s : states) {
    in.push_back(Item::of(region_input(importer, s.type, name_of_input(graph, in.size()))));
    inputs.push_back(ir::GraphWorld::id_of(in.back()->value));
  }
  Body body;
  body.region = record_region(importer, std::move(inputs), [&] {
    const std::vector<ItemPtr> out = importer.run_graph(graph, in);
    if (out.size() < states.size() + 1) c.fail("its body has fewer results than states");
    if (const Tensor known = plain(c, out[0], "condition")->known;
        known.defined() && known.numel() == 1 && !out[0]->follows_weights)
      body.ends_by_count = known.item() != 0;
    std::vector<Value> results{round + num(int64_t{1})};
    for (Value& v : values_of(c, out, "result")) results.push_back(std::move(v));
    results[1] = scalar(results[1]);
    return results;
  });
  return body;
}

// The same without the condition among inputs and results.
Region without_condition(Region r) {
  r.inputs.erase(r.inputs.begin() + 1);
  r.results.erase(r.results.begin() + 1);
  return r;
}

// Rounds as long as the condition holds, and below the trip count: its last carries.
SmallVector<Value, 2> emit_while(Call& c, const Region& body, const Trips& trips, const Value& go,
                                 std::span<const Value> states) {
  Importer& importer = c.importer();
  auto& world = importer.program().world();
  const size_t carries = states.size() + 2;
  Region step = body;
  step.results.resize(carries);
  std::vector<ir::ValueId> captured = body.captured;
  ir::ValueId most = ir::no_value;
  if (trips.data.defined() || trips.size) {
    const Value limit =
        trips.data.defined()
            ? trips.data
            : number(c, 1) * emit("mul", {number(c, 1), Value::number(*trips.size)});
    most = ir::GraphWorld::id_of(limit);
    if (std::ranges::find(captured, most) == captured.end()) captured.push_back(most);
  }
  const Region condition = record_region(importer, body.inputs, [&] {
    const Value holds = world.value(body.inputs[1]);
    if (most == ir::no_value) return std::vector{holds};
    return std::vector{logical_and(holds, lt(world.value(body.inputs[0]), world.value(most)))};
  });
  std::vector<Value> operands{number(c, 0), go};
  operands.insert(operands.end(), states.begin(), states.end());
  append_values(c, captured, operands);
  const auto attributes =
      while_attributes(static_cast<int64_t>(carries),
                       graph_of(importer, condition, captured, graph_name(c, "body") + "_goes_on"),
                       graph_of(importer, step, captured, graph_name(c, "body")));
  return emit_loop(c, while_operator(), attributes, operands);
}

// So many rounds: the last states, then what they scan.
std::vector<Value> emit_rounds(Call& c, const Region& body, const Dim& length,
                               std::span<const Value> states) {
  const Region step = without_condition(body);
  std::vector<Value> operands{number(c, 0)};
  operands.insert(operands.end(), states.begin(), states.end());
  append_values(c, step.captured, operands);
  LoopForm form;
  form.carries = static_cast<int64_t>(states.size()) + 1;
  form.length = length;
  const auto found = emit_loop(
      c, scan_operator(),
      scan_attributes(form, graph_of(c.importer(), step, step.captured, graph_name(c, "body"))),
      operands);
  return {found.begin() + 1, found.end()};
}

Dim counted(Call& c, const Value& n) {
  const Dim size = c.importer().fresh_size();
  c.importer().program().world().emit(range_operator(), range_attributes(size), std::array{n});
  return size;
}

}  // namespace

void loop_by_data(Call& c) {
  const Trips trips = trips_of(c);
  std::vector<ItemPtr> given;
  for (size_t i = 2; i < c.inputs(); ++i) given.push_back(c.item(i));
  const std::vector<Value> states = values_of(c, given, "state");
  Value go;  // where it is not known to hold
  if (c.given(1)) {
    const Tensor known = c.importer().known(*plain(c, c.item(1), "condition"));
    if (!known.defined())
      go = scalar(c.x(1));
    else if (known.numel() != 1)
      c.fail("its condition is {}; one bool is wanted", describe(known));
    else if (known.item() == 0)
      go = c.constant(Tensor::scalar(DType::boolean, false));
  }
  const Body body = record_body(c, states);
  const size_t scans = body.region.results.size() - 2 - states.size();
  const bool by_count = body.ends_by_count && !go.defined();
  if (by_count && !trips.size && !trips.data.defined())
    c.fail("it has no trip count, and its condition always holds");
  // A trip count that its condition stays below may be any: exporters write the greatest integer.
  if (by_count && trips.size && trips.size->is_constant() && trips.size->value() > most_trips)
    c.unsupported("a Loop of more than {} rounds", most_trips);
  if (by_count && (trips.size || scans)) {
    const Dim length =
        trips.size ? *trips.size : counted(c, binary("maximum", trips.data, number(c, 0)));
    for (Value& v : emit_rounds(c, body.region, length, states)) c.give(std::move(v));
    return;
  }
  if (!go.defined()) go = c.constant(Tensor::scalar(DType::boolean, true));
  const auto last = emit_while(c, body.region, trips, go, states);
  if (scans) {
    for (Value& v : emit_rounds(c, body.region, counted(c, last[0]), states)) c.give(std::move(v));
  } else {
    for (size_t i = 2; i < last.size(); ++i) c.give(last[i]);
  }
}

void branch_by_data(Call& c) {
  Importer& importer = c.importer();
  auto record = [&](const char* attribute) {
    return record_region(importer, {}, [&] {
      return values_of(c, importer.run_graph(c.graph(attribute), {}), "result");
    });
  };
  const Value holds = scalar(c.x(0));
  const Region then = record("then_branch"), otherwise = record("else_branch");
  if (then.results.size() != otherwise.results.size())
    c.fail("its branches give {} and {} results", then.results.size(), otherwise.results.size());
  const std::vector<ir::ValueId> captured = all_captured(std::array{&then, &otherwise});
  std::vector<Value> operands{holds};
  append_values(c, captured, operands);
  const auto attributes =
      if_attributes(graph_of(importer, then, captured, graph_name(c, "then_branch")),
                    graph_of(importer, otherwise, captured, graph_name(c, "else_branch")));
  if (then.results.empty()) return;
  for (Value& v : emit_loop(c, if_operator(), attributes, operands)) c.give(std::move(v));
}

std::vector<Value> scan_over(
    Call& c, std::span<const Value> carries, const Value& sequence, bool backwards,
    const std::function<std::vector<Value>(std::span<const Value>)>& step) {
  Importer& importer = c.importer();
  LoopForm loop;
  loop.carries = static_cast<int64_t>(carries.size());
  loop.sequences = 1;
  loop.reverse = backwards;
  std::vector<Value> operands(carries.begin(), carries.end()), in;
  operands.push_back(sequence);
  std::vector<ir::ValueId> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    ir::Type type = operands[i].type;
    if (i == carries.size()) type.dims.erase(type.dims.begin());
    in.push_back(region_input(importer, std::move(type), ""));
    inputs.push_back(ir::GraphWorld::id_of(in.back()));
  }
  const Region body = record_region(importer, std::move(inputs), [&] { return step(in); });
  append_values(c, body.captured, operands);
  const auto found =
      emit_loop(c, scan_operator(),
                scan_attributes(loop, graph_of(importer, body, body.captured, std::string(c.op()))),
                operands);
  return {found.begin(), found.end()};
}

void scan_by_steps(Call& c, const ScanForm& form) {
  Importer& importer = c.importer();
  const auto& graph = c.graph("body");
  LoopForm loop;
  loop.carries = static_cast<int64_t>(form.states);
  loop.sequences = static_cast<int64_t>(form.in_axes.size());
  loop.reverse = !form.in_backwards.empty() && std::ranges::count(form.in_backwards, false) == 0;
  auto turned = [](const Value& x) {
    return emit("flip", {x}, {{"dims", Literal::list(Ints{0})}});
  };
  auto moved = [](const Value& x, int64_t from, int64_t to) {
    Ints order;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != from) order.push_back(d);
    order.insert(order.begin() + to, from);
    return from == to ? x : permute(x, order);
  };
  std::vector<ItemPtr> given;
  for (size_t i = 0; i < c.inputs(); ++i) given.push_back(c.item(i));
  std::vector<Value> operands = values_of(c, given, "input");
  std::vector<ItemPtr> in;
  std::vector<ir::ValueId> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    ir::Type type = operands[i].type;
    if (i >= form.states) {
      const size_t k = i - form.states;
      operands[i] = moved(operands[i], c.axis(form.in_axes[k], type.rank()), 0);
      if (form.in_backwards[k] != loop.reverse) operands[i] = turned(operands[i]);
      type = operands[i].type;
      type.dims.erase(type.dims.begin());
    }
    in.push_back(Item::of(region_input(importer, std::move(type), name_of_input(graph, i))));
    inputs.push_back(ir::GraphWorld::id_of(in.back()->value));
  }
  const Region body = record_region(importer, std::move(inputs), [&] {
    return values_of(c, importer.run_graph(graph, in), "result");
  });
  append_values(c, body.captured, operands);
  const auto found = emit_loop(
      c, scan_operator(),
      scan_attributes(loop, graph_of(importer, body, body.captured, graph.name())), operands);
  for (size_t i = 0; i < found.size(); ++i) {
    Value v = found[i];
    if (i >= form.states) {
      const size_t k = i - form.states;
      if (form.out_backwards[k] != loop.reverse) v = turned(v);
      v = moved(v, 0, c.axis(form.out_axes[k], v.rank()));
    }
    c.give(std::move(v));
  }
}

}  // namespace gradus::onnx
