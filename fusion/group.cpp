#include "fusion/group.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "fusion/group_loops.h"
#include "gradus/attributes.h"
#include "gradus/registry.h"
#include "ops/powers.h"
#include "ops/reduction.h"

namespace gradus::fusion {

namespace {

using ir::ValueId;

// The shape that operands of these shapes broadcast to; they do.
Sizes broadcast(const Sizes& a, const Sizes& b) {
  const Sizes& wide = a.size() < b.size() ? b : a;
  const Sizes& other = a.size() < b.size() ? a : b;
  Sizes shape = wide;
  const size_t lead = wide.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d)
    if (shape[lead + d] == 1) shape[lead + d] = other[d];
  return shape;
}

bool is_cast(const ir::Node& node) { return node.op->traits.converts; }

bool is_power(const ir::Node& node) {
  return node.op->pointwise && &node.op->pointwise() == &ops::general_power_info();
}

// A reduction of some dimensions.
std::optional<ops::ReductionCall> reduction(const ir::Graph& graph, const ir::Node& node) {
  const ValueId x = node.operands.empty() ? ir::no_value : ir::value_in(node.operands[0]);
  if (node.op->pointwise || x == ir::no_value || !graph[x].type.is_tensor()) return std::nullopt;
  const int rank = graph[x].type.rank();
  auto call = ops::reduction_call(*node.op, node.attributes, rank);
  return call && !call->dims.empty() ? call : std::nullopt;
}

// A reduction of trailing dimensions. They are ascending, each once.
std::optional<ops::ReductionCall> row_reduction(const ir::Graph& graph, const ir::Node& node) {
  auto call = reduction(graph, node);
  if (!call) return call;
  const auto n = static_cast<int64_t>(call->dims.size());
  const int rank = graph[ir::value_in(node.operands[0])].type.rank();
  return call->dims.front() == rank - n ? call : std::nullopt;
}

// Of leading ones, but not of all.
std::optional<ops::ReductionCall> column_reduction(const ir::Graph& graph, const ir::Node& node) {
  auto call = reduction(graph, node);
  if (!call) return call;
  const auto n = static_cast<int64_t>(call->dims.size());
  const int rank = graph[ir::value_in(node.operands[0])].type.rank();
  return n < rank && call->dims.back() == n - 1 ? call : std::nullopt;
}

Sizes column_of(Sizes shape, size_t row_dims) {
  std::fill(shape.begin(), shape.end() - static_cast<long>(row_dims), 1);
  return shape;
}

Sizes row_of(Sizes shape, size_t row_dims) {
  std::fill(shape.end() - static_cast<long>(row_dims), shape.end(), 1);
  return shape;
}

// Whether the result does not broadcast against what is reduced. A 0-d one does.
bool drops(const ops::ReductionCall& call, size_t rank) {
  return !call.keepdim && call.dims.size() < rank;
}

class Builder {
 public:
  explicit Builder(const Selection& selection)
      : graph_(selection.graph), selection_(selection), inputs_(selection.layouts) {}

  std::optional<Group> run() {
    // In full: code may be kept, and found from another folder.
    if (selection_.places && graph_.source && !graph_.source->file.empty())
      group_.nest.program = std::filesystem::absolute(graph_.source->file).string();
    for (const ir::Node* node : selection_.nodes) {
      if (!belongs_into_nests(graph_, *node, &why_not_)) return std::nullopt;
      take_numbers(*node);
    }
    // Inputs, sizes, numbers, steps: as a nest's values are numbered.
    for (size_t i = 0; i < inputs_.size(); ++i) {
      set(selection_.inputs[i], static_cast<ValueNumber>(i), inputs_[i].shape);
      group_.nest.loads.push_back({inputs_[i].dtype, {}});
    }
    add_edges();
    first_size_ = static_cast<ValueNumber>(group_.nest.loads.size());
    group_.nest.loads.resize(first_size_ + group_.sizes.size(), {DType::i64, {}});
    for (const ir::Node* node : selection_.nodes)
      if (!add(*node)) return std::nullopt;
    // The loops. Where rows are reduced, what is reduced has their shape.
    Sizes shape = loops_;
    if (row_dims_ == 0)
      for (ValueId v : selection_.results) shape = broadcast(shape, shapes_.at(v));
    for (const auto& [v, s] : shapes_)
      if (broadcast(shape, s) != shape) return refuse("a value is larger than the results");
    for (ValueId v : selection_.results)
      if (!store(v, shape)) return std::nullopt;
    if (group_.results.empty()) return refuse("there is no result");
    if (const char* why = find_loops(group_, inputs_, shape, row_dims_)) return refuse(why);
    return std::move(group_);
  }

  std::string why_not() const { return why_not_; }

 private:
  std::nullopt_t refuse(std::string why) {
    why_not_ = std::move(why);
    return std::nullopt;
  }

  void set(ValueId v, ValueNumber number, Sizes shape) {
    numbers_[v] = number;
    shapes_[v] = std::move(shape);
  }

  void take_numbers(const ir::Node& node) {
    for (const ir::Operand& o : node.operands) {
      if (const auto* n = std::get_if<ir::Number>(&o)) group_.nest.numbers.push_back(*n);
      const ir::Dim* size = std::get_if<ir::Dim>(&o);
      if (size && size->is_constant())
        group_.nest.numbers.push_back(ir::Number::of(size->value()));
      else if (size)
        group_.sizes.push_back(*size);
    }
  }

  // The next number or size, in the order in which they were taken.
  ValueNumber next(const ir::Operand& o) {
    const ir::Dim* size = std::get_if<ir::Dim>(&o);
    if (size && !size->is_constant()) return first_size_ + next_size_++;
    return group_.nest.first_number() + next_number_++;
  }

  bool store(ValueId v, const Sizes& shape) {
    if (std::ranges::count(of_columns_, v)) {
      group_.nest.column_stores.push_back(numbers_.at(v));
      group_.results.emplace_back(graph_[v].type.dtype, shapes_.at(v));
      return true;
    }
    const bool of_row = row_dims_ > 0 && shapes_.at(v) != shape;
    if (shapes_.at(v) != (of_row ? row_of(shape, row_dims_) : shape)) {
      refuse("a result is smaller than another");
      return false;
    }
    if ((!of_row && !group_.nest.row_stores.empty()) || !group_.nest.column_stores.empty()) {
      refuse("a result of a row or column stands before one of elements");
      return false;
    }
    (of_row ? group_.nest.row_stores : group_.nest.stores).push_back(numbers_.at(v));
    group_.results.emplace_back(graph_[v].type.dtype, shapes_.at(v));
    return true;
  }

  // False where it reduces other rows or columns than those before, or what is no element's.
  bool add_reduction(const ir::Node& node, const ops::ReductionCall& call, bool columns) {
    const ValueId x = ir::value_in(node.operands[0]), y = node.results[0];
    const size_t rank = shapes_.at(x).size();
    const size_t row_dims = columns ? rank - call.dims.size() : call.dims.size();
    if (row_dims_ && (row_dims_ != row_dims || loops_ != shapes_.at(x))) {
      refuse("two reductions are of other rows");
      return false;
    }
    if (std::ranges::count(of_columns_, x) || std::ranges::count(dropped_, x)) {
      refuse("a reduction is reduced again");
      return false;
    }
    loops_ = broadcast(loops_, shapes_.at(x));
    row_dims_ = row_dims;
    Step step;
    step.reducer = call.reducer;
    step.columns = columns;
    step.operands.push_back(numbers_.at(x));
    step.compute = compute_of(graph_[x].type.dtype);
    step.dtype = graph_[y].type.dtype;
    set(y, static_cast<ValueNumber>(group_.nest.values()),
        (columns ? column_of : row_of)(shapes_.at(x), row_dims_));
    if (columns)
      of_columns_.push_back(y);
    else if (drops(call, rank))
      dropped_.push_back(y);
    group_.nest.steps.push_back(std::move(step));
    return true;
  }

  // False where reductions do not reduce the same, or leave no dimension to say what for.
  bool add(const ir::Node& node) {
    const size_t before = group_.nest.steps.size();
    if (auto row = row_reduction(graph_, node)) {
      if (!add_reduction(node, *row, false)) return false;
    } else if (auto column = column_reduction(graph_, node)) {
      if (!add_reduction(node, *column, true)) return false;
    } else if (!add_pointwise(node)) {
      return false;
    }
    if (selection_.places)
      for (size_t i = before; i < group_.nest.steps.size(); ++i)
        group_.nest.steps[i].where = node.where;
    const ValueId result = node.results[0];
    for (const auto& [view, of] : selection_.aliases)
      if (of == result) set(view, numbers_.at(of), loops_);
    return true;
  }

  bool add_pointwise(const ir::Node& node) {
    Nest& nest = group_.nest;
    Step step;
    Sizes shape;
    SmallVector<ir::OperandType, 4> types;
    for (const ir::Operand& o : node.operands) {
      types.push_back(graph_.type_of(o));
      ValueId v = ir::value_in(o);
      if (v == ir::no_value) {
        step.operands.push_back(next(o));
        continue;
      }
      if (std::ranges::count(dropped_, v)) {
        refuse("a reduction without its dimensions is read");
        return false;
      }
      if (std::ranges::count(of_columns_, v)) {
        refuse("what a column is reduced to is read");
        return false;
      }
      step.operands.push_back(numbers_.at(v));
      shape = broadcast(shape, shapes_.at(v));
    }
    const ValueId result = node.results[0];
    step.dtype = graph_[result].type.dtype;
    if (!is_cast(node)) {
      step.call = {node.op, node.attributes};
      ir::InferCall call{*node.op, types, node.attributes, {}, nullptr};
      step.compute = ops::pointwise_compute(node.op->pointwise(), call, step.dtype);
    }
    set(result, static_cast<ValueNumber>(nest.values()), std::move(shape));
    nest.steps.push_back(std::move(step));
    return true;
  }

  // Its index's load, then its own.
  void add_edges() {
    std::vector<Load>& loads = group_.nest.loads;
    for (size_t e = 0; e < selection_.edges.size(); ++e) {
      const Edge& edge = selection_.edges[e];
      Load load{edge.layout.dtype, {}, edge.sources.size(), {}};
      if (edge.index) {
        load.index = static_cast<ValueNumber>(loads.size());
        loads.push_back({edge.index->check.dtype, {}});
        group_.arguments.push_back({e, Edge::index_operand});
      }
      set(edge.result, static_cast<ValueNumber>(loads.size()), edge.layout.shape);
      loads.push_back(std::move(load));
      for (const Edge::Source& source : edge.sources)
        group_.arguments.push_back({e, source.operand});
    }
    group_.edges.assign(selection_.edges.begin(), selection_.edges.end());
  }

  const ir::Graph& graph_;
  const Selection& selection_;
  std::span<const Layout> inputs_;
  Group group_;
  Sizes loops_;                      // where rows are reduced
  size_t row_dims_ = 0;              // how many of them are a row
  SmallVector<ValueId, 4> dropped_;  // values of rows whose types lack the rows' dimensions
  SmallVector<ValueId, 4> of_columns_;
  ValueNumber first_size_ = 0;  // loads of sizes stand behind all others
  ValueNumber next_number_ = 0, next_size_ = 0;
  std::unordered_map<ValueId, ValueNumber> numbers_;
  std::unordered_map<ValueId, Sizes> shapes_;
  std::string why_not_;
};

}  // namespace

bool belongs_into_nests(const ir::Graph& graph, const ir::Node& node, std::string* why_not) {
  auto refuse = [&](std::string_view why) {
    if (why_not) *why_not = fmt::format("{} {}", node.op->name, why);
    return false;
  };
  if (row_reduction(graph, node) || column_reduction(graph, node)) return true;
  if (!is_cast(node) && !node.op->pointwise) return refuse("is not pointwise");
  if (ops::is_added(node.op)) return refuse("was registered, and has no rule for kernels");
  if (node.op->pointwise && node.op->pointwise().refuses_zero_divisors &&
      !is_floating(graph[node.results[0]].type.dtype))
    return refuse("of integers may refuse its operands");
  for (const ir::Operand& o : node.operands) {
    if (ir::is_none(o)) return refuse("has an operand none");
    // Which rule a power takes depends on its exponent, if that is a number.
    const ir::Dim* size = std::get_if<ir::Dim>(&o);
    if (size && !size->is_constant() && is_power(node)) return refuse("is by a size");
  }
  return true;
}

std::optional<RowResult> row_result(const ir::Graph& graph, const ir::Node& node,
                                    const Sizes& shape) {
  auto call = row_reduction(graph, node);
  if (!call) return std::nullopt;
  return RowResult{row_of(shape, call->dims.size()), drops(*call, shape.size())};
}

std::optional<Sizes> column_result(const ir::Graph& graph, const ir::Node& node,
                                   const Sizes& shape) {
  auto call = column_reduction(graph, node);
  if (!call) return std::nullopt;
  return column_of(shape, shape.size() - call->dims.size());
}

std::optional<Group> group_nodes(const Selection& selection, std::string* why_not) {
  Builder builder(selection);
  std::optional<Group> group = builder.run();
  if (!group && why_not) *why_not = builder.why_not();
  return group;
}

namespace {

// A node of stage 0 whose operands are its inputs and whose sizes are numbers.
std::optional<Edge> edge_of_inputs(const ir::Graph& graph, const ir::Node& node,
                                   std::span<const Layout> inputs) {
  struct Nothing final : ir::DimEnvironment {
    std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
  };
  const auto& names = graph.stages[0].inputs;
  std::vector<std::optional<Layout>> in;
  for (const ir::Operand& o : node.operands) {
    const auto found = std::ranges::find(names, ir::value_in(o));
    if (found == names.end()) return std::nullopt;
    in.emplace_back(inputs[static_cast<size_t>(found - names.begin())]);
  }
  if (node.results.size() != 1) return std::nullopt;
  const ir::Type& type = graph[node.results[0]].type;
  if (!type.is_tensor() || !ir::all_constant(type.dims)) return std::nullopt;
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  return edge_of(node, in, Layout(type.dtype, shape), Nothing());
}

}  // namespace

std::optional<Group> group_stage(const ir::Graph& graph, std::span<const Layout> inputs,
                                 std::string* why_not) {
  auto refuse = [&](const char* why) {
    if (why_not) *why_not = why;
    return std::nullopt;
  };
  const ir::Stage& stage = graph.stages[0];
  std::vector<const ir::Node*> nodes;
  std::vector<Edge> edges;
  for (const ir::Node& node : stage.nodes)
    if (auto edge = edge_of_inputs(graph, node, inputs))
      edges.push_back(std::move(*edge));
    else
      nodes.push_back(&node);
  std::vector<ValueId> results;
  for (const ir::Result& r : stage.results) {
    if (r.value == ir::no_value) return refuse("a result is none");
    results.push_back(r.value);
  }
  auto group =
      group_nodes({graph, nodes, stage.inputs, inputs, results, {}, false, edges}, why_not);
  if (group && !group->sizes.empty()) return refuse("a size stands as a number");
  return group;
}

}  // namespace gradus::fusion
