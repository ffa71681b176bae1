// RNN, GRU and LSTM, one step after the other: the number of steps has to be known.
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// All steps are nodes of the program.
constexpr int64_t longest_sequence = 10'000;

// The weights of one direction of one layer; biases and the projection may be undefined.
struct CellWeights {
  Value input, hidden, input_bias, hidden_bias, projection;
};
// The state between steps; c is that of LSTM alone.
struct CellState {
  Value h, c;
};

Value times(const Value& x, const Value& w, const Value& bias) {
  Value y = matmul_transposed(x, w);
  return bias.defined() ? y + bias : y;
}

// Gate g of several, side by side in the last dimension.
Value gate(const Value& all, int64_t g, const Dim& width) {
  return slice(all, -1, width * Dim(g), width * Dim(g + 1));
}

// One step. `x` is the input through its weights, biases added.

CellState plain_step(const CellWeights& w, const Value& x, const CellState& s, const char* f) {
  return {unary(f, x + times(s.h, w.hidden, w.hidden_bias)), {}};
}
CellState tanh_step(const CellWeights& w, const Value& x, const CellState& s) {
  return plain_step(w, x, s, "tanh");
}
CellState relu_step(const CellWeights& w, const Value& x, const CellState& s) {
  return plain_step(w, x, s, "relu");
}

// Gates r, z, n.
CellState gru_step(const CellWeights& w, const Value& x, const CellState& s) {
  need_dims(s.h, 1, "its state");
  const Dim& n = s.h.dims().back();
  Value own = times(s.h, w.hidden, w.hidden_bias);
  Value r = unary("sigmoid", gate(x, 0, n) + gate(own, 0, n));
  Value z = unary("sigmoid", gate(x, 1, n) + gate(own, 1, n));
  Value reset = r * gate(own, 2, n);
  Value fresh = unary("tanh", gate(x, 2, n) + reset);
  return {fresh + z * (s.h - fresh), {}};
}

// Gates i, f, g, o.
CellState lstm_step(const CellWeights& w, const Value& x, const CellState& s) {
  need_dims(s.h, 1, "its state");
  need_dims(s.c, 1, "its state of cells");
  const Dim& n = s.c.dims().back();
  Value all = x + times(s.h, w.hidden, w.hidden_bias);
  Value i = unary("sigmoid", gate(all, 0, n)), f = unary("sigmoid", gate(all, 1, n));
  Value g = unary("tanh", gate(all, 2, n)), o = unary("sigmoid", gate(all, 3, n));
  Value kept = f * s.c;
  Value cell = kept + i * g;
  Value h = o * unary("tanh", cell);
  if (w.projection.defined()) h = times(h, w.projection, {});
  return {h, cell};
}

using Step = CellState (*)(const CellWeights&, const Value&, const CellState&);

// Cells, one step each.

template <Step step>
void cell(Call& c) {
  CellWeights w{c.x("w_ih"), c.x("w_hh"), c.x_or_undefined("b_ih"), c.x_or_undefined("b_hh"), {}};
  CellState s;
  if (step == lstm_step) {
    std::vector<Value> states = c.tensors("hx");
    if (states.size() != 2) c.fail("it wants two states");
    s = {states[0], states[1]};
  } else {
    s.h = c.x("hx");
  }
  CellState next = step(w, times(c.x("input"), w.input, w.input_bias), s);
  c.give(next.h);
  if (next.c.defined()) c.give(next.c);
}

// Layers.

struct Stacked {
  Step step;
  std::vector<Value> weights;
  bool biases, projects;
  int64_t layers, directions;
  Value h, c;  // [layers * directions, batch, hidden]

  CellWeights at(size_t i) const {
    const size_t each = 2 + (biases ? 2 : 0) + (projects ? 1 : 0), first = i * each;
    if (weights.size() < first + each) throw Error("it has {} weights, too few", weights.size());
    CellWeights w{weights[first], weights[first + 1], {}, {}, {}};
    if (biases) w.input_bias = weights[first + 2];
    if (biases) w.hidden_bias = weights[first + 3];
    if (projects) w.projection = weights[first + each - 1];
    return w;
  }
};

struct Passed {
  Value all;  // [steps, batch, hidden]
  CellState last;
};

Passed pass(const Stacked& r, const Value& x, size_t i, bool backwards) {
  const int64_t steps = x.dims()[0].value();
  const CellWeights w = r.at(i);
  Value inputs = times(x, w.input, w.input_bias);
  const auto at = static_cast<int64_t>(i);
  CellState s{select(r.h, 0, at), r.c.defined() ? select(r.c, 0, at) : Value()};
  std::vector<Value> all(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = backwards ? steps - 1 - k : k;
    s = r.step(w, select(inputs, 0, t), s);
    all[static_cast<size_t>(t)] = unsqueeze(s.h, 0);
  }
  return {cat(all, 0), s};
}

Stacked stacked_of(Call& c, Step step) {
  Stacked r;
  r.step = step;
  r.weights = c.tensors("params");
  r.biases = c.flag("has_biases", true);
  r.layers = c.integer("num_layers");
  r.directions = c.flag("bidirectional", false) ? 2 : 1;
  if (r.layers < 1 || r.layers > 1024) c.fail("it has {} layers", r.layers);
  const auto cells = static_cast<size_t>(r.layers * r.directions);
  r.projects = step == lstm_step && r.weights.size() == cells * (r.biases ? 5 : 3);
  if (step == lstm_step) {
    std::vector<Value> states = c.tensors("hx");
    if (states.size() != 2) c.fail("it wants two states");
    r.h = states[0];
    r.c = states[1];
  } else {
    r.h = c.x("hx");
  }
  if (c.flag("train", false) && c.number("dropout", 0) > 0 && r.layers > 1)
    c.fail("dropout between layers in train mode is not supported: export in eval mode");
  return r;
}

template <Step step>
void layers(Call& c) {
  Stacked r = stacked_of(c, step);
  const bool batch_first = c.flag("batch_first", false);
  Value x = c.x("input");
  if (x.rank() != 3) c.fail("it wants [steps, batch, input]");
  if (batch_first) x = transpose(x, 0, 1);
  if (!x.dims()[0].constant())
    c.fail("a number of steps that has a name ({}) is not supported", x.dims()[0].to_string());
  const int64_t steps = x.dims()[0].value();
  if (steps < 1 || steps > longest_sequence) c.fail("{} steps are not supported", steps);
  std::vector<Value> h, cells;
  for (int64_t l = 0; l < r.layers; ++l) {
    std::vector<Value> sides;
    for (int64_t d = 0; d < r.directions; ++d) {
      Passed p = pass(r, x, static_cast<size_t>(l * r.directions + d), d == 1);
      sides.push_back(p.all);
      h.push_back(unsqueeze(p.last.h, 0));
      if (p.last.c.defined()) cells.push_back(unsqueeze(p.last.c, 0));
    }
    x = sides.size() == 1 ? sides[0] : cat(sides, 2);
  }
  c.give(batch_first ? transpose(x, 0, 1) : x);
  c.give(cat(h, 0));
  if (!cells.empty()) c.give(cat(cells, 0));
}

constexpr RuleEntry recurrent_table[] = {
    {"lstm.input", layers<lstm_step>},     {"gru.input", layers<gru_step>},
    {"rnn_tanh.input", layers<tanh_step>}, {"rnn_relu.input", layers<relu_step>},
    {"lstm_cell", cell<lstm_step>},        {"gru_cell", cell<gru_step>},
    {"rnn_tanh_cell", cell<tanh_step>},    {"rnn_relu_cell", cell<relu_step>},
};

}  // namespace

constinit const Rules recurrent_rules = recurrent_table;

}  // namespace gradus::pt2
