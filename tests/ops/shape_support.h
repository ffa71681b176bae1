// Small helpers for the tests of operators that move elements: they run programs of one operator
// and hold derivatives of any order against differences.
#pragma once

#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rules.h"
#include "kernels/evaluate.h"

namespace gradus::ops::test {

using ir::NamedLiteral;

// A list attribute: ints("shape", {2, -1}).
inline NamedLiteral ints(const char* name, const std::vector<int64_t>& values) {
  return {name, Literal::list(values), {}};
}
inline NamedLiteral attribute(const char* name, Literal value) {
  return {name, std::move(value), {}};
}

inline Tensor random_tensor(std::span<const int64_t> shape, uint64_t seed,
                            DType dtype = DType::f64) {
  std::mt19937_64 generator(seed);
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  // Small halves: exact in every dtype, and so are sums of a few of them.
  for (double& v : values) v = static_cast<double>(static_cast<int64_t>(generator() % 41) - 20) / 2;
  Tensor t = Tensor::from(DType::f64, shape, values);
  return dtype == DType::f64 ? t : t.to(dtype);
}
inline Tensor random_tensor(std::initializer_list<int64_t> shape, uint64_t seed,
                            DType dtype = DType::f64) {
  return random_tensor(Sizes(shape), seed, dtype);
}
inline Tensor counting(std::initializer_list<int64_t> shape, DType dtype = DType::f64) {
  std::vector<double> values(static_cast<size_t>(numel(Sizes(shape))));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::from(DType::f64, Sizes(shape), values).to(dtype);
}
inline Tensor indices(std::initializer_list<int64_t> shape, std::initializer_list<double> values,
                      DType dtype = DType::i64) {
  return Tensor::from(dtype, Sizes(shape), std::vector<double>(values));
}

// The same values, dimensions laid out backwards and with gaps.
inline Tensor scattered(const Tensor& t) {
  Sizes strides(t.shape().size());
  int64_t step = 2;
  for (size_t d = 0; d < strides.size(); ++d) {
    strides[d] = step;
    step *= std::max<int64_t>(t.shape()[d], 1) + 1;
  }
  Layout layout(t.dtype(), Sizes(t.shape()), strides);
  Tensor memory = random_tensor({layout.extent() + 3}, 99, t.dtype());
  Tensor view = memory.view(layout, 3);
  copy_elements(t.layout(), t.data(), layout, const_cast<std::byte*>(view.data()));
  return view;
}

inline Tensor run_one(std::string_view op, std::initializer_list<EagerOperand> operands,
                      const LiteralList& attributes = {}) {
  return evaluate(op, operands, attributes)[0];
}

// The message of the Error that `f` throws; fails the test if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

// The result types of an operator, as text; equalities that are left to run time follow.
inline std::string types_of(std::string_view op, std::vector<Type> operands,
                            const LiteralList& attributes = {}) {
  const Operator* o = find(op);
  std::vector<ir::OperandType> in(operands.size());
  for (size_t i = 0; i < in.size(); ++i) {
    in[i].kind = ir::OperandType::Kind::tensor;
    in[i].type = &operands[i];
  }
  std::vector<ir::DimEquality> equalities;
  std::string s;
  for (const Type& t : infer(*o, in, o->read(attributes), &equalities))
    s += (s.empty() ? "" : " ") + to_string(t);
  for (const auto& e : equalities) s += " if " + e.a.to_string() + " == " + e.b.to_string();
  return s;
}

// A program of one operator, differentiated, run node by node.
class Program {
 public:
  Program(std::string_view op, const std::vector<EagerOperand>& operands,
          const LiteralList& attributes, int order) {
    ir::Graph graph;
    graph.stages.resize(1);
    ir::Node node;
    node.op = find(op);
    node.attributes = node.op->read(attributes);
    for (const EagerOperand& o : operands) {
      if (auto* t = std::get_if<Tensor>(&o)) {
        Dims dims;
        for (int64_t n : t->shape()) dims.push_back(n);
        ir::ValueId v =
            graph.add_value(Type(t->dtype(), dims), fmt::format("x{}", inputs_.size()), 0);
        graph.stages[0].inputs.push_back(v);
        inputs_.push_back(*t);
        node.operands.push_back(v);
      } else if (auto* n = std::get_if<ir::Number>(&o)) {
        node.operands.push_back(*n);
      } else {
        node.operands.push_back(std::monostate());
      }
    }
    auto types = infer(graph, node, nullptr);
    for (size_t i = 0; i < types.size(); ++i) {
      ir::ValueId v = graph.add_value(types[i], fmt::format("y{}", i), 0);
      node.results.push_back(v);
      graph.stages[0].results.push_back({fmt::format("y{}", i), v});
    }
    graph.stages[0].nodes.push_back(std::move(node));
    graph_ = ir::differentiate(graph, {.order = order, .wrt = std::nullopt});
    ir::decompose(graph_, false);
  }

  const std::vector<Tensor>& inputs() const { return inputs_; }
  const ir::Graph& graph() const { return graph_; }

  // The results of every stage, given every stage's inputs.
  std::vector<std::vector<Tensor>> run(const std::vector<std::vector<Tensor>>& inputs) const {
    std::map<ir::ValueId, Tensor> values;
    std::vector<std::vector<Tensor>> results;
    for (size_t s = 0; s < inputs.size(); ++s) {
      const ir::Stage& stage = graph_.stages[s];
      for (size_t i = 0; i < stage.inputs.size(); ++i) values[stage.inputs[i]] = inputs[s][i];
      for (const ir::Node& node : stage.nodes) {
        std::vector<EagerOperand> operands;
        for (const ir::Operand& o : node.operands) {
          if (auto* v = std::get_if<ir::ValueId>(&o))
            operands.emplace_back(values.at(*v));
          else if (auto* n = std::get_if<ir::Number>(&o))
            operands.emplace_back(*n);
          else if (auto* d = std::get_if<Dim>(&o))
            operands.emplace_back(ir::Number::of(d->value()));
          else
            operands.emplace_back();
        }
        auto out = evaluate(*node.op, node.attributes, operands, *Context::default_context());
        for (size_t i = 0; i < out.size(); ++i) values[node.results[i]] = out[i];
      }
      results.emplace_back();
      for (const ir::Result& r : stage.results)
        results.back().push_back(r.value == ir::no_value ? Tensor() : values.at(r.value));
    }
    return results;
  }

 private:
  ir::Graph graph_;
  std::vector<Tensor> inputs_;
};

inline double inner(const Tensor& a, const Tensor& b) {
  double sum = 0;
  auto x = a.to_doubles(), y = b.to_doubles();
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Every stage k up to `order`: with phi the sum of <ct, result> over stage k-1, the results of
// stage k along random directions against central differences of phi. Random cotangents.
inline void expect_derivatives(std::string_view op, const std::vector<EagerOperand>& operands,
                               const LiteralList& attributes = {}, int order = 3) {
  SCOPED_TRACE(std::string(op));
  Program program(op, operands, attributes, order);
  const ir::Graph& g = program.graph();
  ASSERT_EQ(g.stages.size(), static_cast<size_t>(order) + 1);
  std::vector<std::vector<Tensor>> at{program.inputs()};
  for (int s = 1; s <= order; ++s) {
    at.emplace_back();
    for (ir::ValueId v : g.stages[s].inputs) {
      Sizes shape;
      for (const Dim& d : g[v].type.dims) shape.push_back(d.value());
      at[s].push_back(random_tensor(shape, 1000 * s + at[s].size()));
    }
  }
  for (int k = 1; k <= order; ++k) {
    // A direction for every floating input of the stages before k.
    std::map<std::string, Tensor> direction;
    for (int s = 0; s < k; ++s)
      for (size_t i = 0; i < at[s].size(); ++i)
        if (is_floating(at[s][i].dtype()))
          direction[g[g.stages[s].inputs[i]].name] =
              random_tensor(at[s][i].shape(), 7 + 10 * s + i);
    auto phi = [&](double step) {
      std::vector<std::vector<Tensor>> moved(at.begin(), at.begin() + k);
      for (int s = 0; s < k; ++s)
        for (size_t i = 0; i < moved[s].size(); ++i) {
          auto d = direction.find(g[g.stages[s].inputs[i]].name);
          if (d == direction.end()) continue;
          Tensor by = run_one("mul", {d->second, ir::Number::of(step)});
          moved[s][i] = run_one("add", {moved[s][i], by});
        }
      auto results = program.run(moved)[k - 1];
      double sum = 0;
      size_t ct = 0;
      for (size_t i = 0; i < results.size(); ++i) {
        const ir::Result& r = g.stages[k - 1].results[i];
        std::string name = fmt::format("ct{}_{}", k, r.name);
        while (ct < at[k].size() && g[g.stages[k].inputs[ct]].name != name) ++ct;
        if (ct == at[k].size()) {
          ct = 0;
          continue;  // not floating
        }
        if (results[i].defined()) sum += inner(results[i], at[k][ct]);
      }
      return sum;
    };
    double numeric = (phi(0.5) - phi(-0.5));
    double analytic = 0;
    auto results = program.run({at.begin(), at.begin() + k + 1})[k];
    for (size_t i = 0; i < results.size(); ++i) {
      std::string name = g.stages[k].results[i].name.substr(fmt::format("d{}_", k).size());
      ASSERT_TRUE(direction.count(name)) << name;
      if (results[i].defined()) analytic += inner(results[i], direction.at(name));
    }
    EXPECT_NEAR(analytic, numeric, 1e-9 * std::max(1.0, std::abs(numeric))) << "stage " << k;
    bool empty = true;
    for (const auto& [name, d] : direction) empty = empty && d.numel() == 0;
    if (k == 1 && !empty && !g.stages[0].results.empty() && at[1].size() && at[1][0].numel() > 0) {
      EXPECT_NE(numeric, 0) << "this case shows nothing";
    }
  }
}

// The operator on operands in other layouts and dtypes against the one on contiguous f64s.
inline void expect_all_layouts(std::string_view op, const std::vector<EagerOperand>& operands,
                               const LiteralList& attributes = {}, bool every_dtype = true) {
  SCOPED_TRACE(std::string(op));
  const Operator* o = find(op);
  auto run = [&](auto change) {
    std::vector<EagerOperand> in;
    for (const EagerOperand& e : operands) {
      auto* t = std::get_if<Tensor>(&e);
      in.push_back(t ? EagerOperand(change(*t)) : e);
    }
    return evaluate(*o, o->read(attributes), in, *Context::default_context());
  };
  auto plain = run([](const Tensor& t) { return t; });
  for (int d = 0; d < dtype_count; ++d) {
    DType dtype = static_cast<DType>(d);
    if (dtype != DType::f64 && !every_dtype) continue;
    auto as = [&](const Tensor& t) { return t.dtype() == DType::f64 ? t.to(dtype) : t; };
    auto dense = run(as);
    auto gaps = run([&](const Tensor& t) { return scattered(as(t)); });
    for (size_t i = 0; i < plain.size(); ++i) {
      Tensor want = plain[i].dtype() == DType::f64 ? plain[i].to(dtype) : plain[i];
      EXPECT_TRUE(bitwise_equal(dense[i], want)) << name_of(dtype);
      EXPECT_TRUE(bitwise_equal(gaps[i], want)) << name_of(dtype) << ", strided";
    }
  }
}

}  // namespace gradus::ops::test
