// RNN, GRU and LSTM, one step after the other, or as a loop where the number of steps has a name.
#include "io/onnx/loops.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Steps whose number is known are nodes of the program.
constexpr int64_t most_steps = 10'000;

struct Activation {
  std::string name;
  double alpha, beta;
};

double default_alpha(const std::string& name) {
  if (name == "LeakyRelu") return 0.01;
  if (name == "HardSigmoid") return 0.2;
  return 1;
}

Value apply(Call& c, const Activation& a, const Value& x) {
  if (a.name == "Sigmoid") return unary("sigmoid", x);
  if (a.name == "Tanh") return unary("tanh", x);
  if (a.name == "Relu") return unary("relu", x);
  if (a.name == "Softsign") return unary("softsign", x);
  if (a.name == "Softplus") return unary("softplus", x);
  if (a.name == "Affine") return x * a.alpha + a.beta;
  if (a.name == "ScaledTanh") return unary("tanh", x * a.beta) * a.alpha;
  if (a.name == "LeakyRelu") return emit("leaky_relu", {x}, {{"slope", a.alpha}});
  if (a.name == "Elu") return emit("elu", {x}, {{"alpha", a.alpha}});
  if (a.name == "ThresholdedRelu")
    return emit("threshold", {x}, {{"threshold", a.alpha}, {"value", 0.0}});
  if (a.name == "HardSigmoid")
    return emit("clamp", {x * a.alpha + a.beta}, {{"min", 0.0}, {"max", 1.0}});
  c.unsupported("{} with the activation '{}'", c.op(), a.name);
}

// What all steps of one direction share.
struct Layer {
  Call& c;
  int64_t gates, hidden;
  double clip;
  std::vector<Activation> activations;
  Value recurrent, recurrent_bias;  // [gates * hidden, hidden], [gates * hidden] or undefined
  Value peepholes;                  // [3 * hidden] or undefined
  bool before_reset, forget_by_input;

  Value clipped(const Value& x) const {
    return clip > 0 ? emit("clamp", {x}, {{"min", -clip}, {"max", clip}}) : x;
  }
  Value f(size_t k, const Value& x) const { return apply(c, activations[k], clipped(x)); }
  // The part of gate g of a value whose last dimension has all gates.
  Value part(const Value& all, int64_t g) const {
    return slice(all, -1, g * hidden, (g + 1) * hidden);
  }
  Value rows(const Value& all, int64_t g) const {
    return slice(all, 0, g * hidden, (g + 1) * hidden);
  }
};

// x is W x_t and both biases; h and c are the states before.
struct States {
  Value h, c;
};

States rnn_step(const Layer& l, const Value& x, const States& s) {
  return {l.f(0, x + matmul(s.h, swap_last(l.recurrent))), {}};
}

States gru_step(const Layer& l, const Value& x, const States& s) {
  Value all = matmul(s.h, swap_last(slice(l.recurrent, 0, 0, 2 * l.hidden)));
  Value z = l.f(0, l.part(x, 0) + l.part(all, 0));
  Value r = l.f(0, l.part(x, 1) + l.part(all, 1));
  Value rh = swap_last(l.rows(l.recurrent, 2)), inner;
  if (l.before_reset) {
    Value own = matmul(s.h, rh);
    if (l.recurrent_bias.defined()) own = own + l.rows(l.recurrent_bias, 2);
    inner = r * own;
  } else {
    inner = matmul(r * s.h, rh);
  }
  Value h = l.f(1, l.part(x, 2) + inner);
  Value kept = z * s.h;
  return {(1.0 - z) * h + kept, {}};
}

States lstm_step(const Layer& l, const Value& x, const States& s) {
  Value all = x + matmul(s.h, swap_last(l.recurrent));
  auto peep = [&](const Value& gate, int64_t p, const Value& cell) {
    return l.peepholes.defined() ? gate + l.rows(l.peepholes, p) * cell : gate;
  };
  Value i = l.f(0, peep(l.part(all, 0), 0, s.c));
  Value f = l.forget_by_input ? 1.0 - i : l.f(0, peep(l.part(all, 2), 2, s.c));
  Value g = l.f(1, l.part(all, 3));
  Value kept = f * s.c;
  Value cell = kept + i * g;
  Value o = l.f(0, peep(l.part(all, 1), 1, cell));
  return {o * apply(l.c, l.activations[2], cell), cell};
}

using Step = States (*)(const Layer&, const Value&, const States&);

struct Kind {
  int64_t gates;
  std::vector<std::string> activations;
  Step step;
};

// Input i of one direction: its part along the first dimension.
Value direction_of(Call& c, size_t i, int64_t d) { return select(c.x(i), 0, d); }

Layer layer_of(Call& c, const Kind& kind, int64_t d, int64_t directions) {
  Layer l{c,  kind.gates, c.attribute("hidden_size", int64_t{0}), c.attribute("clip", 0.0), {}, {},
          {}, {},         c.flag("linear_before_reset"),          c.flag("input_forget")};
  l.recurrent = direction_of(c, 2, d);
  auto hidden = l.recurrent.rank() == 2 ? l.recurrent.dims()[1].constant() : std::nullopt;
  if (!hidden || (l.hidden != 0 && l.hidden != *hidden))
    c.fail("hidden_size is not what R has, or R has a size with a name");
  if (*hidden > INT32_MAX) c.fail("a hidden_size of {} is out of range", *hidden);
  l.hidden = *hidden;
  if (c.given(3))
    l.recurrent_bias = slice(direction_of(c, 3, d), 0, l.gates * l.hidden, 2 * l.gates * l.hidden);
  if (kind.gates == 4 && c.given(7)) l.peepholes = direction_of(c, 7, d);
  std::vector<std::string> names = c.texts("activations");
  std::vector<double> alphas = c.numbers("activation_alpha"), betas = c.numbers("activation_beta");
  size_t n = kind.activations.size(), at = static_cast<size_t>(d) * n;
  if (!names.empty() && names.size() != n * static_cast<size_t>(directions))
    c.fail("it wants {} activations for each direction", n);
  for (size_t k = 0; k < n; ++k) {
    std::string name = names.empty() ? kind.activations[k] : names[at + k];
    double alpha = at + k < alphas.size() ? alphas[at + k] : default_alpha(name);
    double beta = at + k < betas.size()   ? betas[at + k]
                  : name == "HardSigmoid" ? 0.5
                  : name == "Affine"      ? 0
                                          : 1;
    l.activations.push_back({name, alpha, beta});
  }
  return l;
}

// All of x through W at once, [steps, batch, gates * hidden], with the biases that can be added
// now.
Value projected(Call& c, const Layer& l, const Value& x, int64_t d) {
  Value y = matmul(x, swap_last(direction_of(c, 1, d)));
  if (!c.given(3)) return y;
  Value bias = slice(direction_of(c, 3, d), 0, 0, l.gates * l.hidden);
  if (!l.before_reset || l.gates != 3) return y + (bias + l.recurrent_bias);
  Value own = slice(l.recurrent_bias, 0, 0, 2 * l.hidden);
  return y + (bias + pad_zeros(own, 0, 0, l.hidden));
}

struct Passed {
  Value all;  // [steps, batch, hidden]
  States last;
};

// One step, which leaves the elements of a batch as they are that are shorter.
struct Advanced {
  States next;
  Value y;
};
struct Stepper {
  const Layer& l;
  const Kind& kind;
  Value lengths;  // [batch, 1], or undefined

  Advanced advance(const Value& x, const States& s, const Value& t) const {
    States next = kind.step(l, x, s);
    Value y = next.h;
    if (lengths.defined()) {
      Value runs = gt(lengths, t);
      y = where(runs, next.h, num(0.0));
      next.h = where(runs, next.h, s.h);
      if (s.c.defined()) next.c = where(runs, next.c, s.c);
    }
    return {next, y};
  }
};

// A number of steps that has a name: a loop of the program.
Passed looped(const Stepper& stepper, const Value& inputs, const States& s, bool backwards) {
  Call& c = stepper.l.c;
  const bool cell = s.c.defined();
  std::vector<Value> carries{s.h};
  if (cell) carries.push_back(s.c);
  // The number of the step.
  Value first = full(c.world(), {}, 0, DType::i64);
  carries.push_back(backwards ? first + Value::number(inputs.dims()[0] - Dim(1)) : first);
  const auto found = scan_over(c, carries, inputs, backwards, [&](std::span<const Value> in) {
    const Value &x = in.back(), t = in[carries.size() - 1];
    const Advanced a = stepper.advance(x, {in[0], cell ? in[1] : Value()}, t);
    std::vector<Value> out{a.next.h};
    if (cell) out.push_back(a.next.c);
    out.push_back(t + num(int64_t{backwards ? -1 : 1}));
    out.push_back(a.y);
    return out;
  });
  return {found.back(), {found[0], cell ? found[1] : Value()}};
}

Passed pass(Call& c, const Kind& kind, const Value& x, int64_t d, int64_t directions,
            bool backwards) {
  Layer l = layer_of(c, kind, d, directions);
  Dims shape{x.dims()[1], l.hidden};
  bool cell = kind.gates == 4;
  auto initial = [&](size_t i) {
    if (!c.given(i)) return full(c.world(), shape, 0, x.dtype());
    Value v = c.x(i);
    if (c.flag("layout")) v = transpose(v, 0, 1);
    return select(v, 0, d);
  };
  States s{initial(5), cell ? initial(6) : Value()};
  Value inputs = projected(c, l, x, d);
  Value lengths = c.given(4) ? unsqueeze(c.x(4), 1) : Value();
  if (!x.dims()[0].constant()) return looped({l, kind, lengths}, inputs, s, backwards);
  const int64_t steps = x.dims()[0].value();
  std::vector<Value> all(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    int64_t t = backwards ? steps - 1 - k : k;
    const Advanced a = Stepper{l, kind, lengths}.advance(select(inputs, 0, t), s, num(t));
    all[static_cast<size_t>(t)] = unsqueeze(a.y, 0);
    s = a.next;
  }
  return {cat(all, 0), s};
}

void run(Call& c, const Kind& kind) {
  bool batch_first = c.flag("layout");
  Value x = c.x();
  if (x.rank() != 3) c.fail("it wants [steps, batch, input]");
  if (batch_first) x = transpose(x, 0, 1);
  if (const auto steps = x.dims()[0].constant()) {
    if (*steps == 0) c.fail("it has no steps");
    if (*steps > most_steps) c.unsupported("{} of more than {} steps", c.op(), most_steps);
  }
  std::string direction = c.attribute("direction", "forward");
  int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (directions == 1 && direction != "forward" && direction != "reverse")
    c.fail("there is no direction '{}'", direction);
  std::vector<Value> all, h, cell;
  for (int64_t d = 0; d < directions; ++d) {
    Passed p = pass(c, kind, x, d, directions, d == 1 || direction == "reverse");
    all.push_back(unsqueeze(p.all, 1));
    h.push_back(unsqueeze(p.last.h, 0));
    if (kind.gates == 4) cell.push_back(unsqueeze(p.last.c, 0));
  }
  Value y = cat(all, 1);
  auto state = [&](const std::vector<Value>& parts) {
    Value v = cat(parts, 0);
    return batch_first ? transpose(v, 0, 1) : v;
  };
  c.give(batch_first ? permute(y, {2, 0, 1, 3}) : y);
  c.give(state(h));
  if (kind.gates == 4) c.give(state(cell));
}

void rnn(Call& c) { run(c, {1, {"Tanh"}, rnn_step}); }
void gru(Call& c) { run(c, {3, {"Sigmoid", "Tanh"}, gru_step}); }
void lstm(Call& c) { run(c, {4, {"Sigmoid", "Tanh", "Tanh"}, lstm_step}); }

constexpr RuleEntry recurrent_table[] = {
    {"RNN", 1, rnn},
    {"GRU", 1, gru},
    {"LSTM", 1, lstm},
};

}  // namespace

constinit const Rules recurrent_rules = recurrent_table;

}  // namespace gradus::onnx
