// What the cost model expects of groups, and what they take.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>

#include "fusion/cost.h"
#include "gradus/inputs.h"
#include "gradus/inspect.h"
#include "interpreter/plan/steps.h"
#include "interpreter/planning.h"
#include "ir/passes/loop_step.h"

namespace gradus {

namespace {

using interpreter::Draft;
using interpreter::Local;
using interpreter::Weighing;

// The instructions with the views that lead from one to another: the group reads a row's value as
// one of each element.
std::vector<uint32_t> with_views(const Weighing& w) {
  const Draft& d = w.draft;
  std::map<Register, uint32_t> made_by;
  for (uint32_t n = 0; n < d.bound.size(); ++n)
    for (Register r : d.results_of(n)) made_by.emplace(r, n);
  std::set<uint32_t> all(w.instructions.begin(), w.instructions.end());
  std::vector<uint32_t> open(w.instructions.begin(), w.instructions.end());
  while (!open.empty()) {
    const uint32_t n = open.back();
    open.pop_back();
    for (uint32_t k = 0; k < d.instruction(n).operands; ++k) {
      const Register r = d.operand(n, k);
      if (!d.is_met(r)) continue;
      const Register root = d.locals[d.local_number(r)].root;
      const auto view = made_by.find(r), of = made_by.find(root);
      if (root == r || view == made_by.end() || of == made_by.end()) continue;
      if (all.contains(of->second) && all.insert(view->second).second) open.push_back(view->second);
    }
  }
  return {all.begin(), all.end()};
}

Layout layout_of(const Draft& d, Register r) {
  if (d.is_met(r))
    if (const Local& l = d.locals[d.local_number(r)]; l.kind != Local::Kind::absent)
      return l.layout;
  const ir::Type& type = d.code.type_of(r);
  const Sizes sizes = d.sizes_of(type);
  return {type.dtype, sizes, contiguous_strides(sizes)};
}

WeighedGroup describe(const Weighing& w, const fusion::Machine& machine) {
  const Draft& d = w.draft;
  const ir::Graph& from = d.code.graph();
  WeighedGroup group;
  group.is_kernel = w.wanted;
  const fusion::Estimate e = fusion::estimate(w.nest, w.frame, machine);
  group.saved = e.saved;
  group.lost = e.lost;
  if (e.refused) group.refused = e.refused;
  ir::Graph program;
  program.name = "group";
  program.ranges = from.ranges;
  ir::Stage& stage = program.stages.emplace_back();
  std::map<ir::ValueId, ir::ValueId> ours;
  auto add = [&](ir::ValueId v) {
    return ours[v] = program.add_value(from[v].type, from[v].name, 0);
  };
  for (uint32_t n : with_views(w)) {
    ir::Node node = d.node(n);
    if (std::ranges::count(w.instructions, n)) {
      group.operators.push_back(node.op->name);
      group.places.push_back(node.where);
    }
    for (uint32_t k = 0; k < node.operands.size(); ++k) {
      const ir::ValueId v = ir::value_in(node.operands[k]);
      if (v == ir::no_value) continue;
      if (!ours.contains(v)) {
        stage.inputs.push_back(add(v));
        group.inputs.push_back(layout_of(d, d.operand(n, k)));
      }
      node.operands[k] = ours.at(v);
    }
    for (ir::ValueId& v : node.results) v = add(v);
    stage.nodes.push_back(std::move(node));
  }
  for (Register r : w.stored) {
    const ir::ValueId v = d.code.value_of(r);
    stage.results.push_back({fmt::format("y{}", stage.results.size()), ours.at(v)});
  }
  ir::name_inputs(program);
  group.program = std::make_shared<const ir::Graph>(std::move(program));
  return group;
}

// Random numbers where they lie as the layout says.
Tensor input_for(const Layout& layout, const std::string& name, Context& context) {
  int64_t elements = 1, first = 0;
  for (int d = 0; d < layout.rank(); ++d) {
    if (layout.shape[d] == 0) return Tensor::empty(layout.dtype, layout.shape, context);
    const int64_t reach = (layout.shape[d] - 1) * layout.strides[d];
    elements += std::abs(reach);
    if (reach < 0) first -= reach;
  }
  const std::array<int64_t, 1> all{elements};
  Tensor memory = is_floating(layout.dtype) ? random_tensor(layout.dtype, all, name, 1, context)
                                            : Tensor::zeros(layout.dtype, all);
  return memory.view(layout, first);
}

}  // namespace

std::vector<WeighedGroup> weigh_groups(const Code& code, const DimSizes& sizes) {
  interpreter::KernelChoice choice = interpreter::imagined_kernels();
  const fusion::Machine machine = choice.source->machine();
  std::vector<WeighedGroup> groups;
  choice.weighed = [&](const Weighing& w) { groups.push_back(describe(w, machine)); };
  interpreter::plan_segments(code, sizes, choice, [](const auto&, const auto&) {});
  return groups;
}

GroupTimes measure_group(const WeighedGroup& group) {
  constexpr int rounds = 15;
  constexpr double round_seconds = 1e-3;
  ContextOptions one_worker;
  one_worker.workers = 1;
  auto context = std::make_shared<Context>(one_worker);
  set_kernel_options(*context, {.always = true, .whole_stages = WholeStages::off});
  const auto code = Code::compile(*group.program);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < group.inputs.size(); ++i)
    inputs.push_back(input_for(group.inputs[i], code->input_name(0, i), *context));
  State kernel(code, context, {.fusion = FusionMode::first});
  State apart(code, context, {.fusion = FusionMode::off});
  auto timed = [&](State& state, int times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      state.restart();
      state.run(inputs);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
  };
  for (State* s : {&kernel, &apart}) timed(*s, 2);
  const int times = std::max(1, static_cast<int>(round_seconds / std::max(timed(apart, 3), 1e-9)));
  std::vector<double> of_kernel, of_apart;
  for (int round = 0; round < rounds; ++round) {
    of_kernel.push_back(timed(kernel, times));
    of_apart.push_back(timed(apart, times));
  }
  auto median = [](std::vector<double>& v) {
    std::ranges::nth_element(v, v.begin() + rounds / 2);
    return v[rounds / 2] * 1e6;
  };
  return {median(of_apart), median(of_kernel)};
}

}  // namespace gradus
