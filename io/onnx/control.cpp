// If, Loop and Scan: decided and unrolled now, or branches and loops of the program.
#include <algorithm>

#include <onnx/onnx_pb.h>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"
#include "io/onnx/loops.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

constexpr int64_t most_rounds = 100'000;
// So many are unrolled: as a loop they are no smaller, and each knows its number.
constexpr int64_t few_rounds = 8;

// `by_data`, and where that cannot be, what has to be known for `now`.
void by_data_or_now(Call& c, void (*by_data)(Call&), void (*now)(Call&)) {
  std::string why;
  try {
    return by_data(c);
  } catch (const Unsupported& e) {
    why = e.message();
  }
  c.results().clear();
  try {
    now(c);
  } catch (const NeedsValue& e) {
    throw NeedsValue(fmt::format("{}; {}", e.message(), why), e.reason());
  }
}

void choose_now(Call& c) {
  bool yes = c.number(0, "condition") != 0;
  for (ItemPtr& item : c.importer().run_graph(c.graph(yes ? "then_branch" : "else_branch"), {}))
    c.give(std::move(item));
}

void if_else(Call& c) {
  if (c.importer().known(*c.item(0)).defined()) return choose_now(c);
  by_data_or_now(c, branch_by_data, choose_now);
}

bool holds(Call& c, Item& condition) {
  Tensor t = c.importer().known(condition);
  if (!t.defined() || t.numel() != 1)
    throw NeedsValue(
        "its condition depends on data, and has to be known while importing; import "
        "the model with its value (gradus import --inputs F.npz)",
        fmt::format("{} whose condition depends on data", c.op()));
  return t.item() != 0;
}

void unroll(Call& c) {
  const auto& body = c.graph("body");
  int64_t trips = c.given(0) ? c.integer(0, "trip count") : INT64_MAX;
  ItemPtr condition = c.given(1) ? c.item(1) : Item::of(Tensor::scalar(DType::boolean, true));
  std::vector<ItemPtr> state;
  for (size_t i = 2; i < c.inputs(); ++i) state.push_back(c.given(i) ? c.item(i) : Item::nothing());
  size_t given = state.size(), gives = static_cast<size_t>(body.output_size());
  if (gives < given + 1) c.fail("its body has fewer results than states");
  std::vector<std::vector<ItemPtr>> scanned(gives - 1 - given);
  for (int64_t i = 0; i < trips && holds(c, *condition); ++i) {
    if (i == most_rounds) c.unsupported("a Loop of more than {} rounds", most_rounds);
    std::vector<ItemPtr> in{Item::of(tensor_with(i)), condition};
    in.insert(in.end(), state.begin(), state.end());
    std::vector<ItemPtr> out = c.importer().run_graph(body, std::move(in));
    condition = out[0];
    std::copy(out.begin() + 1, out.begin() + 1 + static_cast<ptrdiff_t>(given), state.begin());
    for (size_t k = 0; k < scanned.size(); ++k) scanned[k].push_back(out[1 + given + k]);
  }
  for (ItemPtr& item : state) c.give(std::move(item));
  for (size_t k = 0; k < scanned.size(); ++k) {
    if (scanned[k].empty()) c.unsupported("a Loop without rounds whose results are stacked");
    c.give(c.importer().joined("stack", scanned[k], 0));
  }
}

bool has_few_rounds(Call& c) {
  if (!c.given(0) || !c.item(0)->is_tensor()) return false;
  return c.importer().known(*c.item(0)).defined() && c.integer(0, "trip count") <= few_rounds;
}

void loop(Call& c) {
  if (has_few_rounds(c)) {
    try {
      return unroll(c);
    } catch (const NeedsValue&) {
      c.results().clear();  // its condition
    }
  }
  by_data_or_now(c, loop_by_data, unroll);
}

struct Scanned {
  Ints axes;
  std::vector<bool> backwards;
};
Scanned scanned_of(Call& c, const char* axes, const char* directions, size_t n) {
  Scanned s{c.integers(axes).value_or(Ints(n, 0)), {}};
  for (int64_t d : c.integers(directions).value_or(Ints(n, 0))) s.backwards.push_back(d != 0);
  if (s.axes.size() != n || s.backwards.size() != n)
    c.fail("'{}' and '{}' want {} numbers", axes, directions, n);
  return s;
}

// One run over the scanned inputs, from these states: final states, then what was scanned.
std::vector<ItemPtr> scan_once(Call& c, std::vector<ItemPtr> state, const std::vector<Value>& xs,
                               const Scanned& in, const Scanned& out) {
  const auto& body = c.graph("body");
  size_t states = state.size();
  std::vector<std::vector<ItemPtr>> results(out.axes.size());
  int64_t rounds = 0;
  for (size_t k = 0; k < xs.size(); ++k) {
    int axis = c.axis(in.axes[k], xs[k].rank());
    auto n = xs[k].dims()[static_cast<size_t>(axis)].constant();
    if (!n) c.unsupported("Scan over a number of elements that has a name");
    if (k > 0 && *n != rounds) c.fail("its scanned inputs have {} and {} elements", rounds, *n);
    rounds = *n;
  }
  if (rounds > most_rounds) c.unsupported("a Scan of more than {} rounds", most_rounds);
  if (rounds == 0) c.unsupported("a Scan over nothing");
  for (int64_t i = 0; i < rounds; ++i) {
    std::vector<ItemPtr> given = state;
    for (size_t k = 0; k < xs.size(); ++k)
      given.push_back(Item::of(
          select(xs[k], c.axis(in.axes[k], xs[k].rank()), in.backwards[k] ? rounds - 1 - i : i)));
    std::vector<ItemPtr> gives = c.importer().run_graph(body, std::move(given));
    if (gives.size() != states + results.size()) c.fail("its body has a wrong number of results");
    std::copy(gives.begin(), gives.begin() + static_cast<ptrdiff_t>(states), state.begin());
    for (size_t k = 0; k < results.size(); ++k) results[k].push_back(gives[states + k]);
  }
  for (size_t k = 0; k < results.size(); ++k) {
    if (out.backwards[k]) std::reverse(results[k].begin(), results[k].end());
    state.push_back(c.importer().joined("stack", results[k], out.axes[k]));
  }
  return state;
}

// How many states and scanned inputs there are, from input `first` on, and results.
struct ScanCounts {
  size_t scans, states, gives;
};
ScanCounts scan_counts(Call& c, size_t first) {
  auto scans = static_cast<size_t>(c.attribute("num_scan_inputs", int64_t{0}));
  if (scans == 0 || scans > c.inputs() || scans + first > c.inputs())
    c.fail("num_scan_inputs is out of range");
  ScanCounts n{scans, c.inputs() - first - scans,
               static_cast<size_t>(c.graph("body").output_size())};
  if (n.gives < n.states) c.fail("its body has fewer results than states");
  return n;
}

ScanForm form_of_scan(Call& c) {
  const auto [scans, states, gives] = scan_counts(c, 0);
  Scanned in = scanned_of(c, "scan_input_axes", "scan_input_directions", scans);
  Scanned out = scanned_of(c, "scan_output_axes", "scan_output_directions", gives - states);
  return {states, in.axes, out.axes, in.backwards, out.backwards};
}

// How many rounds, where that is a number.
std::optional<int64_t> rounds_of(Call& c, const ScanForm& form) {
  const size_t first = form.states;
  const int axis = c.axis(form.in_axes[0], c.rank(first));
  return c.type(first).dims[static_cast<size_t>(axis)].constant();
}

void scan_now(Call& c) {
  const auto [scans, states, gives] = scan_counts(c, 0);
  std::vector<ItemPtr> state;
  std::vector<Value> xs;
  for (size_t i = 0; i < states; ++i) state.push_back(c.item(i));
  for (size_t i = states; i < c.inputs(); ++i) xs.push_back(c.x(i));
  Scanned in = scanned_of(c, "scan_input_axes", "scan_input_directions", scans);
  Scanned out = scanned_of(c, "scan_output_axes", "scan_output_directions", gives - states);
  for (ItemPtr& item : scan_once(c, std::move(state), xs, in, out)) c.give(std::move(item));
}

void scan(Call& c) {
  const std::optional<int64_t> rounds = rounds_of(c, form_of_scan(c));
  if (rounds && *rounds > 0 && *rounds <= few_rounds) return scan_now(c);
  by_data_or_now(
      c, [](Call& d) { scan_by_steps(d, form_of_scan(d)); }, scan_now);
}

// Version 8 has a batch of everything, each with its own length, which is not supported.
void scan_batches(Call& c) {
  if (c.given(0)) c.unsupported("Scan of version 8 with sequence_lens");
  const auto [scans, states, gives] = scan_counts(c, 1);
  auto batch = c.rank(1) > 0 ? c.type(1).dims[0].constant() : std::nullopt;
  if (!batch || *batch == 0 || *batch > most_rounds) c.unsupported("Scan over a batch of any size");
  Scanned in = scanned_of(c, "scan_input_axes", "directions", scans);
  Scanned out = scanned_of(c, "scan_output_axes", "scan_output_directions", gives - states);
  std::vector<std::vector<ItemPtr>> results(gives);
  for (int64_t b = 0; b < *batch; ++b) {
    auto sample = [&](size_t i) { return select(c.x(i), 0, b); };
    std::vector<ItemPtr> state;
    std::vector<Value> xs;
    for (size_t i = 1; i <= states; ++i) state.push_back(Item::of(sample(i)));
    for (size_t i = states + 1; i < c.inputs(); ++i) xs.push_back(sample(i));
    std::vector<ItemPtr> one = scan_once(c, std::move(state), xs, in, out);
    for (size_t k = 0; k < gives; ++k) results[k].push_back(one[k]);
  }
  for (auto& list : results) c.give(c.importer().joined("stack", list, 0));
}

constexpr RuleEntry control_table[] = {
    {"If", 1, if_else, {}, false},
    {"Loop", 1, loop, {}, false},
    {"Scan", 8, scan_batches, {}, false},
    {"Scan", 9, scan, {}, false},
};

}  // namespace

constinit const Rules control_rules = control_table;

}  // namespace gradus::onnx
