// A node as the rule of its operator sees it.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/rules.h"
#include "io/pt2/schema.h"
#include "io/pt2/values.h"
#include "ops/by_name.h"

namespace gradus::pt2 {

using ir::LiteralList;
using ops::emit;
using ops::emit_all;
using ops::Ints;
using ops::num;
using ops::Value;

class Call;
class Importer;

// The rule of an ATen operator: of one overload ("add.Tensor"), or of all that have no rule of
// their own ("add"). An operator that writes its first operand ("add_") has the rule of the one
// that does not; the importer writes. `ours` is our operator's name where one rule serves several.
struct RuleEntry {
  std::string_view name;
  void (*rule)(Call&);
  std::string_view ours = {};
};

// What a rule for real tensors is shown of complex ones, so that it serves them as well.
struct Shown {
  enum class As : uint8_t {
    sum,        // one part of all; data that are real are 0 where it is the imaginary one
    product,    // one part of each; what is real stays
    magnitude,  // their absolute values
  } as = As::sum;
  // Which parts are imaginary ones: a bit for each complex operand, in order; one for all of a sum.
  uint32_t imaginary = 0;
  std::string_view hidden = {};  // an argument that is not shown
};
// What it gives then: of an argument or a view of one, where `of` is not empty.
struct ShownResult {
  Value value;
  std::string of = {};
  View view = {};
};

// Rules say what an operator means over values, as compositions do. Arguments are asked for by
// their names in ATen's schema; those left out have the default that the rule gives.
class Call {
 public:
  Call(Importer& importer, const RuleEntry& rule, const Node& node, ops::World& world);

  std::string_view op() const { return op_; }  // "add.Tensor"
  std::string_view ours() const { return rule_->ours.empty() ? base_ : rule_->ours; }
  ops::World& world() { return world_; }
  Importer& importer() { return importer_; }

  // Whether an argument is there and not None.
  bool given(std::string_view name) const;
  // A tensor, or a number where the argument is one (sizes and bools are integers).
  Value x(std::string_view name = "self");
  Value x_or_undefined(std::string_view name);  // undefined where it is not given
  bool is_tensor(std::string_view name) const;
  // A list of tensors; undefined where an entry is None.
  std::vector<Value> tensors(std::string_view name);
  int rank(std::string_view name = "self") { return x(name).rank(); }
  // A dimension, counted from the front; of a 0-d tensor 0.
  int64_t dim(std::string_view name, int64_t absent, int rank) const;
  int64_t dim(std::string_view name, int rank) const;

  // Numbers and other constants. Throw Error where the argument is of another kind, or, without
  // `absent`, missing.
  Dim size(std::string_view name) const;
  Dim size(std::string_view name, const Dim& absent) const;
  Dims sizes(std::string_view name) const;  // one size stands for a list of one
  // Refused where a size with a name stands in its place.
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t absent) const;
  Ints integers(std::string_view name) const;
  Ints integers(std::string_view name, const Ints& absent) const;
  double number(std::string_view name) const;
  double number(std::string_view name, double absent) const;
  std::vector<double> numbers(std::string_view name) const;
  bool flag(std::string_view name, bool absent) const;
  std::vector<bool> truths(std::string_view name) const;
  std::string text(std::string_view name, std::string_view absent) const;
  std::optional<DType> dtype(std::string_view name = "dtype") const;
  // The elements of a tensor that follows from constants alone; else refused: "`what` has to be
  // known".
  Tensor known(std::string_view name);
  // The value; as a constant where it follows from constants alone and is not large.
  Value settled(const Value& value);

  // A tensor argument as the archive has it.
  const TensorMeta& meta(std::string_view name = "self") const;
  // The type of result i as the archive has it: in a list of tensors the i-th.
  size_t results() const { return result_names_.size(); }
  const TensorMeta& result(size_t i = 0) const;
  // Whether a later node or an output reads result i.
  bool wants(size_t i) const;

  // Results, in order. A value of its own; nothing (for a result that nobody reads).
  void give(Value value);
  void give_nothing();
  // A view of the tensor that an argument names; the argument itself.
  void give_view(std::string_view of, View view);
  void give_same(std::string_view of);
  // Writes to a tensor that an argument names; the value is cast and expanded to its type.
  void write(std::string_view name, const Value& value);
  // The argument lies otherwise in its memory from now on.
  void view_again(std::string_view name, View view);

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
  }

  // Of complex numbers.
  bool is_complex(std::string_view name) const;
  size_t complex_operands(std::string_view hidden) const;  // but for an argument
  // A tensor or number, whose imaginary part is undefined where it is real.
  Pair pair(std::string_view name = "self");
  // What the rule for real tensors gives when it is shown that.
  std::vector<ShownResult> run_shown(const Shown& shown);

  // For the importer.
  const std::vector<TensorPtr>& given_results() const { return given_; }
  const std::string& result_name(size_t i) const { return result_names_[i]; }

 private:
  const Argument* find(std::string_view name) const;
  // A number that is computed, which leaves dtypes as a number of Python's does.
  Value computed(const NumberName& number) const;
  const Argument& need(std::string_view name) const;
  TensorPtr tensor(std::string_view name) const;
  // Of the complex operands the one with that name, or at that place of the list.
  size_t complex_place(std::string_view name, size_t at = 0) const;
  Value seen(const std::string& tensor, std::string_view name, size_t at = 0);
  const Argument* shown_number(const NamedArgument& argument) const;

  Importer& importer_;
  const RuleEntry* rule_;
  const Node& node_;
  ops::World& world_;
  std::string_view op_, base_;
  std::vector<std::string> result_names_;
  std::vector<TensorPtr> given_;
  const Shown* shown_ = nullptr;
  std::vector<ShownResult> shown_results_;
  mutable std::deque<Argument> shown_numbers_;
};

// The operand in that dtype; numbers stay numbers.
Value as(const Value& x, DType dtype);

// The families.
using Rules = std::span<const RuleEntry>;
extern const Rules pointwise_rules, activation_rules, comparison_rules, reduction_rules, view_rules,
    shape_rules, creation_rules, indexing_rules, product_rules, convolution_rules,
    normalization_rules, attention_rules, loss_rules, recurrent_rules, linear_algebra_rules,
    sorting_rules, quantile_rules, histogram_rules, sample_rules, window_rules, assertion_rules,
    backward_rules, derivative_rules, fourier_rules, unique_rules, random_rules;
// Of these a node has its rule that has a complex operand or result.
extern const Rules complex_rules, complex_fourier_rules;

// "add.Tensor" of "torch.ops.aten.add.Tensor"; operators that are not ATen's keep their library's
// name: "gradus.grad.default".
std::string_view operator_of(std::string_view target);
// The rule of "add.Tensor"; null if there is none.
const RuleEntry* find_rule(std::string_view op);
const RuleEntry* find_complex_rule(std::string_view op);

}  // namespace gradus::pt2
