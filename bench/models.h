// Models that the benchmarks train a step of: text of the forward pass to the loss, its inputs, and
// which of them are the parameters.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gradus/tensor.h"

namespace gradus::bench {

struct ModelInput {
  std::string name;
  Sizes shape;
  double scale = 1;       // of values that are drawn from N(0, 1); 0: all are zero
  bool parameter = true;  // differentiated
  int64_t below = 0;      // else i64 from 0 on, below this
};

struct Model {
  std::string name;
  std::vector<ModelInput> inputs;
  std::string body;      // f32; the loss is %loss
  bool updates = false;  // whether a step gives new parameters, or their gradients

  std::vector<std::string> parameters() const {
    std::vector<std::string> names;
    for (const ModelInput& i : inputs)
      if (i.parameter) names.push_back(i.name);
    return names;
  }
  // One stage: a training step.
  std::string text() const {
    std::string list, slopes, of, results;
    auto more = [](std::string& to, const std::string& what) {
      to += (to.empty() ? "" : ", ") + what;
    };
    for (const ModelInput& i : inputs)
      more(list,
           fmt::format("%{}: {}[{}]", i.name, i.below ? "i64" : "f32", fmt::join(i.shape, ", ")));
    std::string update;
    for (const std::string& p : parameters()) {
      more(slopes, "%slope_" + p);
      more(of, "%" + p);
      more(results, (updates ? "%new_" : "%slope_") + p);
      if (updates)
        update += fmt::format("    %new_{0} = add(%{0}, %slope_{0}) {{alpha = -1e-4}}\n", p);
    }
    return fmt::format(
        "graph step {{\n  stage 0 ({}) {{\n{}    {} = grad(%loss, {})\n{}    return %loss, {}\n  "
        "}}\n}}\n",
        list, body, slopes, of, update, results);
  }
};

// The last hidden state's mean square, the cell unrolled, gates i, f, g, o.
inline Model lstm(int64_t batch, int64_t hidden, int64_t steps) {
  const double s = 1 / std::sqrt(static_cast<double>(hidden));
  Model m{fmt::format("lstm {}x{}x{}", steps, batch, hidden), {}, ""};
  m.inputs = {{"wi", {4 * hidden, hidden}, s},
              {"wh", {4 * hidden, hidden}, s},
              {"bi", {4 * hidden}, s},
              {"bh", {4 * hidden}, s},
              {"x", {steps, batch, hidden}, 1, false},
              {"h_0", {batch, hidden}, 0, false},
              {"c_0", {batch, hidden}, 0, false}};
  std::string xs;
  for (int64_t t = 0; t < steps; ++t) xs += fmt::format("{}%x_{}", t ? ", " : "", t);
  m.body = fmt::format("    {} = unbind(%x) {{dim = 0}}\n", xs);
  for (int64_t t = 0; t < steps; ++t)
    m.body += fmt::format(R"(    %a{0} = linear(%x{0}, %wi, %bi)
    %r{0} = linear(%h{0}, %wh, %bh)
    %g{0} = add(%a{0}, %r{0})
    %i0{0}, %f0{0}, %g0{0}, %o0{0} = chunk(%g{0}) {{chunks = 4, dim = 1}}
    %i{0} = sigmoid(%i0{0})
    %f{0} = sigmoid(%f0{0})
    %n{0} = tanh(%g0{0})
    %o{0} = sigmoid(%o0{0})
    %k{0} = mul(%f{0}, %c{0})
    %u{0} = mul(%i{0}, %n{0})
    %c{1} = add(%k{0}, %u{0})
    %t{0} = tanh(%c{1})
    %h{1} = mul(%o{0}, %t{0})
)",
                          fmt::format("_{}", t), fmt::format("_{}", t + 1));
  m.body += fmt::format("    %s = square(%h_{})\n    %loss = mean(%s)\n", steps);
  return m;
}

// A critic of two hidden layers of tanh: D(fake) - D(real) + 10 (|D'(between)| - 1)^2, its gradient
// a double backward.
inline Model wgan_gp(int64_t batch, int64_t in, int64_t hidden) {
  const double s = 1 / std::sqrt(static_cast<double>(hidden));
  Model m{fmt::format("wgan-gp {} of {}-{}-{}-1", batch, in, hidden, hidden), {}, ""};
  m.inputs = {{"w1", {hidden, in}, s},          {"b1", {hidden}, s},
              {"w2", {hidden, hidden}, s},      {"b2", {hidden}, s},
              {"w3", {1, hidden}, s},           {"b3", {1}, s},
              {"real", {batch, in}, 1, false},  {"fake", {batch, in}, 1, false},
              {"alpha", {batch, 1}, 0.3, false}};
  auto critic = [](const char* x, const char* tag) {
    return fmt::format(R"(    %p1{1} = linear({0}, %w1, %b1)
    %h1{1} = tanh(%p1{1})
    %p2{1} = linear(%h1{1}, %w2, %b2)
    %h2{1} = tanh(%p2{1})
    %d{1} = linear(%h2{1}, %w3, %b3)
)",
                       x, tag);
  };
  m.body = critic("%fake", "f") + critic("%real", "r") + R"(    %mf = mean(%df)
    %mr = mean(%dr)
    %l0 = sub(%mf, %mr)
    %ar = mul(%alpha, %real)
    %rest = sub(1.0, %alpha)
    %af = mul(%rest, %fake)
    %between = add(%ar, %af)
)" + critic("%between", "b") +
           R"(    %total = sum(%db)
    %slope = grad(%total, %between)
    %length = norm(%slope) {p = 2.0, dim = [1]}
    %over = sub(%length, 1.0)
    %square = square(%over)
    %penalty = mean(%square)
    %scaled = mul(%penalty, 10.0)
    %loss = add(%l0, %scaled)
)";
  return m;
}

inline Model mlp(int64_t batch, int64_t in, int64_t hidden, int64_t out) {
  return {fmt::format("mlp {} of {}-{}-{}-{}", batch, in, hidden, hidden, out),
          {{"w1", {hidden, in}, .05},
           {"b1", {hidden}, .05},
           {"w2", {hidden, hidden}, .05},
           {"b2", {hidden}, .05},
           {"w3", {out, hidden}, .05},
           {"b3", {out}, .05},
           {"x", {batch, in}, 1, false},
           {"y", {batch}, 1, false, out}},
          R"(    %p1 = linear(%x, %w1, %b1)
    %h1 = relu(%p1)
    %p2 = linear(%h1, %w2, %b2)
    %h2 = relu(%p2)
    %p3 = linear(%h2, %w3, %b3)
    %loss = cross_entropy(%p3, %y)
)",
          true};
}

inline Model transformer(int64_t batch, int64_t length, int64_t width, int64_t heads) {
  const int64_t head = width / heads;
  Model m{fmt::format("transformer block {}x{}x{}", batch, length, width), {}, ""};
  m.inputs = {{"ln1w", {width}, 1},
              {"ln1b", {width}, .01},
              {"ln2w", {width}, 1},
              {"ln2b", {width}, .01},
              {"wq", {3 * width, width}, .05},
              {"bq", {3 * width}, .05},
              {"wo", {width, width}, .05},
              {"bo", {width}, .05},
              {"w1", {4 * width, width}, .05},
              {"b1", {4 * width}, .05},
              {"w2", {width, 4 * width}, .05},
              {"b2", {width}, .05},
              {"x", {batch, length, width}, 1, false}};
  m.body = fmt::format(R"(    %n1 = layer_norm(%x, %ln1w, %ln1b) {{normalized_shape = [{width}]}}
    %all = linear(%n1, %wq, %bq)
    %five = reshape(%all) {{shape = [{batch}, {length}, 3, {heads}, {head}]}}
    %parts = permute(%five) {{dims = [2, 0, 3, 1, 4]}}
    %q, %k, %v = unbind(%parts) {{dim = 0}}
    %kt = transpose(%k) {{dim0 = -1, dim1 = -2}}
    %qk = matmul(%q, %kt)
    %scores = mul(%qk, {scale})
    %a = softmax(%scores) {{dim = -1}}
    %av = matmul(%a, %v)
    %back = transpose(%av) {{dim0 = 1, dim1 = 2}}
    %o = reshape(%back) {{shape = [{batch}, {length}, {width}]}}
    %lo = linear(%o, %wo, %bo)
    %y = add(%x, %lo)
    %n2 = layer_norm(%y, %ln2w, %ln2b) {{normalized_shape = [{width}]}}
    %u = linear(%n2, %w1, %b1)
    %g = gelu(%u)
    %d = linear(%g, %w2, %b2)
    %z = add(%y, %d)
    %s = square(%z)
    %loss = mean(%s)
)",
                       fmt::arg("batch", batch), fmt::arg("length", length),
                       fmt::arg("width", width), fmt::arg("heads", heads), fmt::arg("head", head),
                       fmt::arg("scale", 1 / std::sqrt(static_cast<double>(head))));
  return m;
}

// Two convolutions, each with a pooling, and two layers.
inline Model cifar(int64_t batch) {
  return {fmt::format("cifar net {}", batch),
          {{"w1", {32, 3, 3, 3}, .1},
           {"b1", {32}, .1},
           {"w2", {64, 32, 3, 3}, .1},
           {"b2", {64}, .1},
           {"w3", {128, 4096}, .05},
           {"b3", {128}, .05},
           {"w4", {10, 128}, .05},
           {"b4", {10}, .05},
           {"x", {batch, 3, 32, 32}, 1, false},
           {"y", {batch}, 1, false, 10}},
          R"(    %p1 = conv2d(%x, %w1, %b1) {padding = [1]}
    %r1 = relu(%p1)
    %m1 = max_pool2d(%r1) {kernel = [2, 2]}
    %p2 = conv2d(%m1, %w2, %b2) {padding = [1]}
    %r2 = relu(%p2)
    %m2 = max_pool2d(%r2) {kernel = [2, 2]}
    %flat = flatten(%m2) {start_dim = 1}
    %p3 = linear(%flat, %w3, %b3)
    %r3 = relu(%p3)
    %p4 = linear(%r3, %w4, %b4)
    %loss = cross_entropy(%p4, %y)
)"};
}

// What the benchmarks run.
inline std::vector<Model> models() {
  return {
      lstm(1, 16, 20),        wgan_gp(1, 16, 16),          lstm(64, 256, 20), wgan_gp(128, 64, 256),
      mlp(128, 784, 512, 10), transformer(8, 128, 256, 4), cifar(64)};
}

}  // namespace gradus::bench
