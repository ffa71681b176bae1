// A node as the rule of its operator sees it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/onnx.h"
#include "gradus/rules.h"
#include "io/onnx/item.h"
#include "ops/by_name.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace gradus::onnx {

using ir::Dim;
using ir::Dims;
using ir::Literal;
using ir::LiteralList;
using ops::emit;
using ops::emit_all;
using ops::Ints;
using ops::num;
using ops::Value;

class Call;
class Importer;

// An operator's rule from a version of the operators on. `ours` is our name of what it does, where
// one rule serves several; `folds` is whether it may run on tensors where all inputs are known.
struct RuleEntry {
  std::string_view name;
  int since;
  void (*rule)(Call&);
  std::string_view ours = {};
  bool folds = true;
};

// Rules say what an operator means over values, as compositions do; they work in the program's
// world, and, where all inputs are known, on tensors. What has to be known now is asked for by
// name: an Error says so where it is not.
class Call {
 public:
  Call(Importer& importer, const RuleEntry& rule, const ::onnx::NodeProto& node, int opset,
       ops::World& world, bool folding, std::vector<ItemPtr> inputs)
      : importer_(importer),
        rule_(rule),
        node_(node),
        opset_(opset),
        world_(world),
        folding_(folding),
        inputs_(std::move(inputs)) {}

  std::string_view op() const;
  std::string_view ours() const { return rule_.ours; }
  int opset() const { return opset_; }
  ops::World& world() { return world_; }
  Importer& importer() { return importer_; }
  // Whether the rule runs on tensors.
  bool folding() const { return folding_; }

  // Inputs by number. Absent ones are refused, but by `given`.
  size_t inputs() const { return inputs_.size(); }
  bool given(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  const ItemPtr& item(size_t i) const;
  Value x(size_t i = 0);
  const ir::Type& type(size_t i = 0) const;
  int rank(size_t i = 0) const { return type(i).rank(); }
  DType dtype(size_t i = 0) const { return type(i).dtype; }
  DType dtype(std::string_view attribute, int64_t absent) const;  // by ONNX's number
  // A constant of the world at hand.
  Value constant(Tensor value);
  // A dimension that may count from the end, as one from the front.
  int axis(int64_t axis, int rank) const;
  // The one of the first input that an attribute names.
  int axis(std::string_view name, int64_t absent) const {
    return axis(attribute(name, absent), rank());
  }

  // What is known while importing. `what` is the input's name in messages.
  Tensor known(size_t i, std::string_view what);
  // Whether it is a constant of the model: an input's value has to be asked for, and what follows
  // weights may be another in a run.
  bool is_known(size_t i) const {
    return given(i) && inputs_[i]->known.defined() && !inputs_[i]->input &&
           !inputs_[i]->follows_weights;
  }
  Ints integers(size_t i, std::string_view what);
  int64_t integer(size_t i, std::string_view what);
  double number(size_t i, std::string_view what);
  // Integers that may have names of sizes in them.
  Dims sizes(size_t i, std::string_view what);

  // Attributes. Throws Error for one of another kind.
  const ::onnx::AttributeProto* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t attribute(std::string_view name, int64_t absent) const;
  // One that is a size: fails outside of [least, 2^31).
  int64_t size(std::string_view attribute, int64_t absent, int64_t least = 1) const;
  double attribute(std::string_view name, double absent) const;
  bool flag(std::string_view name, bool absent = false) const {
    return attribute(name, int64_t{absent}) != 0;
  }
  std::string attribute(std::string_view name, const char* absent) const;
  std::optional<Ints> integers(std::string_view name) const;
  Dims sizes(std::string_view name) const;  // the same; none where it is left out
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  Tensor tensor(std::string_view name) const;
  const ::onnx::GraphProto& graph(std::string_view name) const;

  // Results, in order.
  size_t outputs() const;
  bool wants(size_t i) const;  // whether the model has a name for it
  void give(Value value);
  void give(ItemPtr item) { results_.push_back(std::move(item)); }
  // Result i, which comes next: made where the model has a name for it, else absent.
  template <class Make>
  void give_wanted(size_t i, Make make) {
    if (wants(i)) return give(make());
    results_.push_back(nullptr);
  }
  std::vector<ItemPtr>& results() { return results_; }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
  }
  // Refuses what has no meaning here: "LSTM with clip".
  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    refuse(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  const ::onnx::AttributeProto* find(std::string_view name, int type, const char* kind) const;

  Importer& importer_;
  const RuleEntry& rule_;
  const ::onnx::NodeProto& node_;
  int opset_;
  ops::World& world_;
  bool folding_;
  std::vector<ItemPtr> inputs_;
  std::vector<ItemPtr> results_;
};

// A name for what data count, as an attribute; on tensors nobody needs one.
LiteralList count_of(Call& call);
// The rule of a function of one operand, by our name of it.
void unary_rule(Call& call);
// x where it lies between two bounds, else the nearer one.
Value between(const Value& x, const Value& low, const Value& high);
// As it lies under the dimensions from `axis` on of a tensor of so many.
Value under(Value v, int64_t axis, int rank);

// sizes.cpp, arithmetic on sizes that have names, which models compute from Shape to feed Reshape:
// the result of a node of which an input is made of such sizes, if it can be said in names of sizes
// again; null otherwise.
ItemPtr fold_sizes(Call& call);

// The rule of an operator as of a version; null if there is none of that name or so old.
// Operators of other domains have it in front: "ai.onnx.ml.Normalizer".
const RuleEntry* find_rule(std::string_view name, int opset);
// Whether there is a rule for that operator as of any version.
bool has_rule(std::string_view name);

// The families.
using Rules = std::span<const RuleEntry>;
extern const Rules arithmetic_rules, activation_rules, reduction_rules, shape_rules, creation_rules,
    indexing_rules, convolution_rules, pooling_rules, normalization_rules, loss_rules, resize_rules,
    sampling_rules, recurrent_rules, control_rules, sequence_rules, signal_rules, training_rules,
    bit_rules, quantization_rules, attention_rules, state_rules, learned_rules, tree_rules;

}  // namespace gradus::onnx
