// The values of a trace: what is recorded becomes nodes of a program.
#pragma once

#include <map>
#include <unordered_map>

#include "autograd/recorder.h"
#include "gradus/read_watch.h"
#include "interpreter/opaque_call.h"
#include "ir/passes/graph_world.h"

namespace gradus::interpreter {

// Knows every value of a program's stages by its memory and its gradient edge, and keeps both. What
// it is told of becomes nodes of the last stage. One thread at a time records.
class TraceValues final : public autograd::Recorder, public ReadWatch {
 public:
  explicit TraceValues(ir::Graph& program) : graph_(program) {}

  // The ones that record on this thread; null if none do.
  static TraceValues* current();
  // An opaque function was called, a handle evaluated.
  void function_called(const autograd::CppFunction& function, std::span<const bool> marks,
                       std::span<const autograd::Variable> operands, const OpaqueVariables& found);
  void evaluated(const HandleOrigin& of, std::span<const autograd::Variable> cotangents,
                 const OpaqueVariables& found);

  // Recorder, ReadWatch.
  void called(const autograd::OperatorCall& call,
              std::span<const autograd::Variable* const> operands,
              const autograd::Variables& results) override;
  void meets(std::string_view what) override;
  bool shapes_only() const override { return shapes_only_; }
  void reads(const Tensor& tensor) const override;

  // From now on no values are computed.
  void keep_shapes(bool on) { shapes_only_ = on; }
  // Something that has to have values ("function 'f'"): an Error where there are none.
  void need_values(std::string_view what);
  bool needs_values() const { return needs_values_; }

  // The program's value that a variable is; a new constant where it is none.
  ops::Value value_of(const autograd::Variable& v);
  // An input of the last stage. Two values need memories of their own to be told apart.
  void know_input(ir::ValueId id, const autograd::Variable& v);
  // A leaf that was made here, of any values: a value of this program.
  void know_leaf(const autograd::Variable& v);
  bool knows_memory(const Tensor& t) const { return known_.contains(t.storage().get()); }
  // Stages whose values begin here are gone.
  void forget_from(size_t value);
  // From now on variables that require gradients and are no values of this program become inputs of
  // it, behind those that it has.
  void capture_leading() { captures_ = Captures::leading; }
  // From now on what is no value of this program becomes an input of it, behind those that it has:
  // values of `around` (null where nothing is recorded there), and tensors that are no scalars.
  void capture_from(TraceValues* around);
  const autograd::Variables& captured() const { return captured_; }
  // Whether a value without its gradient edge is another value: not where nothing has edges.
  void detach_values(bool on) { detaching_ = on; }
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  enum class Captures : uint8_t { nothing, leading, all };
  enum class Origin : uint8_t { input, made, constant, captured };
  struct Known {
    ir::ValueId value;
    Tensor tensor;
    autograd::Edge edge;
    uint64_t version;
    Origin origin;
  };

  ir::GraphWorld world();
  ops::Value constant(const Tensor& t);
  ops::Value capture(const autograd::Variable& v);
  bool is_captured(const autograd::Variable& v, const Known* same) const;
  void know(const ops::Value& value, const autograd::Variable& v, Origin origin = Origin::made);
  void know_results(const OpaqueVariables& found, std::span<const ops::Value> values);
  bool is_traced(const Tensor& t) const;
  bool is_traced_here_or_around(const Tensor& t) const;

  ir::Graph& graph_;
  std::unordered_multimap<const Storage*, Known> known_;
  std::map<const HandleOrigin*, std::pair<ir::ValueId, Ref<const HandleOrigin>>> handles_;
  autograd::Variables captured_;
  TraceValues* around_ = nullptr;
  Captures captures_ = Captures::nothing;
  bool detaching_ = true;
  bool shapes_only_ = false, needs_values_ = false;
};

}  // namespace gradus::interpreter
