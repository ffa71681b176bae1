// Opaque C++ functions for the tests' programs. `register_test_functions` may be called any number
// of times.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "gradus/apply.h"
#include "gradus/custom_function.h"
#include "gradus/error.h"
#include "gradus/opaque_function.h"

namespace gradus::test {

using autograd::Variable;
using autograd::Variables;

inline Variable op(std::string_view name, std::initializer_list<autograd::VariableOperand> operands,
                   const ir::LiteralList& attributes = {}) {
  return autograd::apply(name, operands, attributes)[0];
}

// A function made of lambdas.
class TestFunction final : public autograd::CppFunction {
 public:
  using Infer = std::function<std::vector<ir::Type>(std::span<const ir::Type>)>;
  using Call = std::function<Variables(std::span<const Variable>)>;
  TestFunction(std::string name, int order, Infer infer, Call call)
      : name_(std::move(name)), order_(order), infer_(std::move(infer)), call_(std::move(call)) {}
  std::string name() const override { return name_; }
  int order() const override { return order_; }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    return infer_(operands);
  }
  Variables call(std::span<const Variable> operands) const override { return call_(operands); }

 private:
  std::string name_;
  int order_;
  Infer infer_;
  Call call_;
};

// One whose handles can be made anew.
class Replayed final : public autograd::CppFunction {
 public:
  std::string name() const override { return "t.replayed"; }
  bool replayable() const override { return true; }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    return {operands.begin(), operands.end()};
  }
  Variables call(std::span<const Variable> x) const override {
    return {op("mul", {x[0], op("sin", {x[0]})})};
  }
};

// As a Python function is: called by `python_op`, y = s x w^n, "ttss" with a floating s and a whole
// n from 0 on.
class ScaledPower final : public autograd::CppFunction {
 public:
  explicit ScaledPower(ops::CallScalars scalars = {}) : scalars_(std::move(scalars)) {}
  std::string name() const override { return "t.scaled_power"; }
  std::string_view caller() const override { return "python_op"; }
  ops::CallScalars scalars() const override { return scalars_; }
  std::shared_ptr<const ops::OpaqueFunction> with_scalars(
      const ops::CallScalars& given) const override {
    ops::CallScalars s = given;
    if (s.convention.empty()) s.convention = "ttss";
    if (s.convention != "ttss" || s.values.size() != 2)
      throw Error("it takes two tensors and two scalars, \"ttss\"");
    return std::make_shared<ScaledPower>(std::move(s));
  }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    if (scalars_.values.empty()) throw Error("it takes two scalars: write them in `scalars`");
    if (operands.size() != 2) throw Error("it takes two tensors");
    return {operands[0]};
  }
  Variables call(std::span<const Variable> x) const override {
    double s = std::get<double>(scalars_.values[0].value);
    Variable y = op("mul", {x[0], ir::Number::of(s)});
    for (int64_t n = std::get<ir::Dim>(scalars_.values[1].value).value(); n > 0; --n)
      y = op("mul", {y, x[1]});
    return {y};
  }

 private:
  ops::CallScalars scalars_;
};

// So many floating operands, so many results of the first one's type.
inline TestFunction::Infer elementwise(size_t operands, size_t results = 1) {
  return [=](std::span<const ir::Type> in) {
    if (in.size() != operands)
      throw Error("it takes {} operands, {} are given", operands, in.size());
    for (const ir::Type& t : in)
      if (!t.is_floating()) throw Error("it takes floating operands");
    return std::vector<ir::Type>(results, in[0]);
  };
}

inline void define(const std::string& name, int order, TestFunction::Infer infer,
                   TestFunction::Call call) {
  ops::register_function(
      std::make_shared<TestFunction>(name, order, std::move(infer), std::move(call)));
}

// x^3, its backward written by hand.
struct Cube final : autograd::CustomFunction {
  std::string name() const override { return "Cube"; }
  std::vector<Tensor> forward(autograd::FunctionContext& context,
                              std::span<const Variable> in) const override {
    context.save(in);
    Variable square = op("mul", {in[0], in[0]});
    return {op("mul", {square, in[0]}).data()};
  }
  Variables backward(autograd::FunctionContext& context, const Variables& dy) const override {
    Variable x = context.saved()[0];
    Variable slope = op("mul", {op("mul", {x, x}), ir::Number::of(3.0)});
    return {op("mul", {dy[0], slope})};
  }
};

// a b; what the engine asks of it is noted.
inline std::atomic<int> asked_runs{0}, asked_a{0}, asked_b{0};
struct Asked final : autograd::CustomFunction {
  std::string name() const override { return "Asked"; }
  std::vector<Tensor> forward(autograd::FunctionContext& context,
                              std::span<const Variable> in) const override {
    context.save(in);
    return {op("mul", {in[0], in[1]}).data()};
  }
  Variables backward(autograd::FunctionContext& context, const Variables& dy) const override {
    ++asked_runs;
    Variables in = context.saved(), gradients(2);
    if (context.needs_gradient(0)) {
      ++asked_a;
      gradients[0] = op("mul", {dy[0], in[1]});
    }
    if (context.needs_gradient(1)) {
      ++asked_b;
      gradients[1] = op("mul", {dy[0], in[0]});
    }
    return gradients;
  }
};

// x, whose backward throws while this is not negative and counts down to 0.
inline std::atomic<int> until_backfire{-1};
struct Backfire final : autograd::CustomFunction {
  std::string name() const override { return "Backfire"; }
  std::vector<Tensor> forward(autograd::FunctionContext&,
                              std::span<const Variable> in) const override {
    return {in[0].data().copy()};
  }
  Variables backward(autograd::FunctionContext&, const Variables& dy) const override {
    if (until_backfire >= 0 && until_backfire-- == 0) throw std::runtime_error("it backfired");
    return dy;
  }
};

// How often `counted` was called, and how often of these it was recorded.
inline std::atomic<int> calls{0}, recorded_calls{0};
// What `thrower` does: throws if this is 0, else counts it down.
inline std::atomic<int> until_throw{1 << 30};
enum class Fault { error, runtime_error, number };
inline std::atomic<Fault> fault{Fault::error};
inline void disarm_faults() {
  until_backfire = -1;
  until_throw = 1 << 30;
  fault = Fault::error;
}

inline void define_smooth_functions() {
  constexpr int any = ops::OpaqueFunction::any_order;
  define("t.square", any, elementwise(1), [](std::span<const Variable> x) {
    return Variables{op("mul", {x[0], x[0]})};
  });
  ops::register_function(std::make_shared<Replayed>());
  ops::register_function(std::make_shared<ScaledPower>());
  define("t.swish", 2, elementwise(1), [](std::span<const Variable> x) {
    return Variables{op("mul", {x[0], op("sigmoid", {x[0]})})};
  });
  define("t.wave", any, elementwise(2), [](std::span<const Variable> x) {
    return Variables{op("mul", {op("sin", {x[0]}), op("exp", {x[1]})})};
  });
  define("t.cube", any, elementwise(1), [](std::span<const Variable> x) {
    static const auto cube = std::make_shared<const Cube>();
    return autograd::CustomFunction::apply(cube, x);
  });
  define("t.asked", any, elementwise(2), [](std::span<const Variable> x) {
    static const auto asked = std::make_shared<const Asked>();
    return autograd::CustomFunction::apply(asked, x);
  });
  // a b, and a^2 alone; with the number of elements between them.
  define(
      "t.two", any,
      [](std::span<const ir::Type> in) {
        auto list = elementwise(2, 2)(in);
        list.insert(list.begin() + 1, ir::Type(DType::i64, {}));
        return list;
      },
      [](std::span<const Variable> x) {
        Variable n(Tensor::scalar(DType::i64, static_cast<double>(x[0].data().numel())));
        return Variables{op("mul", {x[0], x[1]}), n, op("mul", {x[0], x[0]})};
      });
}

inline void define_aliasing_functions() {
  constexpr int any = ops::OpaqueFunction::any_order;
  define("t.identity", any, elementwise(1),
         [](std::span<const Variable> x) { return Variables{x[0]}; });
  define("t.swap", any, elementwise(2, 2), [](std::span<const Variable> x) {
    return Variables{x[1], x[0]};
  });
  define("t.constant", any, elementwise(1),
         [](std::span<const Variable> x) { return Variables{Variable(x[0].data().copy())}; });
  define(
      "t.transposed", any,
      [](std::span<const ir::Type> in) {
        ir::Type t = elementwise(1)(in)[0];
        if (t.rank() != 2) throw Error("it takes a matrix, not {}", to_string(t));
        std::swap(t.dims[0], t.dims[1]);
        return std::vector<ir::Type>{t};
      },
      [](std::span<const Variable> x) {
        return autograd::apply("transpose", {x[0]}, {{"dim0", 0, {}}, {"dim1", 1, {}}});
      });
  // The second operand is an index: no gradient goes there.
  define(
      "t.take", any,
      [](std::span<const ir::Type> in) {
        if (in.size() != 2 || in[1].dtype != DType::i64)
          throw Error("it takes a tensor and an i64 index");
        ir::Type t = in[0];
        t.dims = in[1].dims;
        return std::vector<ir::Type>{t};
      },
      [](std::span<const Variable> x) {
        return autograd::apply("index_select", {x[0], x[1]}, {{"dim", 0, {}}});
      });
}

inline void define_faulty_functions() {
  constexpr int any = ops::OpaqueFunction::any_order;
  define("t.counted", any, elementwise(1), [](std::span<const Variable> x) {
    ++calls;
    recorded_calls += autograd::recording();
    return Variables{op("mul", {x[0], ir::Number::of(2.0)})};
  });
  define("t.thrower", any, elementwise(1), [](std::span<const Variable> x) {
    if (until_throw-- == 0) {
      if (fault == Fault::error) throw Error("it had enough");
      if (fault == Fault::runtime_error) throw std::runtime_error("out of luck");
      throw 7;
    }
    return Variables{op("mul", {x[0], x[0]})};
  });
  define("t.two_for_one", any, elementwise(1), [](std::span<const Variable> x) {
    return Variables{x[0], x[0]};
  });
  define("t.undefined", any, elementwise(1),
         [](std::span<const Variable>) { return Variables{Variable()}; });
  define("t.scalar_for_all", any, elementwise(1),
         [](std::span<const Variable> x) { return Variables{op("sum", {x[0]})}; });
  define("t.f32_for_f64", any, elementwise(1), [](std::span<const Variable> x) {
    return Variables{op("cast", {x[0]}, {{"dtype", DType::f32, {}}})};
  });
  define("t.writes", any, elementwise(1), [](std::span<const Variable> x) {
    Tensor t = x[0].data();
    *t.mutable_data_as<double>() = 100;
    return Variables{Variable(t.copy())};
  });
  define(
      "t.f32_only", any,
      [](std::span<const ir::Type> in) {
        auto out = elementwise(1)(in);
        if (in[0].dtype != DType::f32) throw Error("it takes f32, not {}", to_string(in[0]));
        return out;
      },
      [](std::span<const Variable> x) {
        return Variables{op("mul", {x[0], x[0]})};
      });
  define("t.backfires", any, elementwise(1), [](std::span<const Variable> x) {
    static const auto backfire = std::make_shared<const Backfire>();
    return autograd::CustomFunction::apply(backfire, x);
  });
  define(
      "t.clumsy", any,
      [](std::span<const ir::Type>) -> std::vector<ir::Type> {
        throw std::out_of_range("no such operand");
      },
      [](std::span<const Variable> x) { return Variables{x[0]}; });
  define(
      "t.unknown_size", any,
      [](std::span<const ir::Type>) {
        return std::vector<ir::Type>{ir::Type(DType::f64, {ir::Dim::symbol("K")})};
      },
      [](std::span<const Variable> x) { return Variables{x[0]}; });
}

inline void register_test_functions() {
  static std::once_flag once;
  std::call_once(once, [] {
    define_smooth_functions();
    define_aliasing_functions();
    define_faulty_functions();
  });
}

}  // namespace gradus::test
