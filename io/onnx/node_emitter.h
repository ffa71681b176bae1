// A pointwise operator's rule as nodes of an ONNX model: the scalar world's emitter beside LLVM's
// values and CUDA C++. Elementary functions are ONNX's own, so that the bits are those of whoever
// runs the model. What works on bits has no node, and is refused when a rule comes to it.
#pragma once

#include <deque>

#include "fusion/scalar_emitter.h"
#include "io/onnx/exporter.h"

namespace gradus::onnx {

class NodeEmitter final : public fusion::ScalarEmitter {
 public:
  explicit NodeEmitter(ModelWriter& to) : to_(to) {}

  // An operand, of f64, f32, i64 or bool.
  V operand(DType dtype, Wire wire) { return give(dtype, std::move(wire)); }
  static const Wire& wire(V v) { return of(v).wire; }

  V constant(fusion::LaneType type, double value) override;
  V constant(fusion::LaneType type, int64_t value) override;
  V truth(bool value) override;
  V unary(fusion::Unary op, V x) override;
  V binary(fusion::Binary op, V a, V b) override;
  V compare(fusion::Compare op, V a, V b) override;
  V select(V condition, V a, V b) override;
  V fma(V a, V b, V c) override;  // two roundings where a machine has one
  V to_bits(V x) override;
  V from_bits(V x) override;
  V fmod(V a, V b) override;
  V function(fusion::Function f, V x, V y) override;
  // A model has no branches around nodes.
  void begin_rare(V) override {}
  void join_rare() override {}
  void end_rare() override {}

 private:
  struct Value {
    DType dtype;
    Wire wire;
    bool is_true = false;  // the constant
  };

  static const Value& of(V v) { return *reinterpret_cast<const Value*>(v); }
  V give(DType dtype, Wire wire);
  V node(const char* op, DType result, std::initializer_list<V> operands,
         std::vector<NodeAttribute> attributes = {});
  template <class T>
  V composed(fusion::Function f, V x, V y);

  ModelWriter& to_;
  std::deque<Value> values_;
};

}  // namespace gradus::onnx
