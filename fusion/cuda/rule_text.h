// An operator's rule as lines of CUDA C++: the scalar world's third emitter, beside numbers and
// LLVM's values.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "fusion/scalar_emitter.h"
#include "gradus/small_vector.h"

namespace gradus::fusion::cuda {

// What an expression of the text is: `float`, `double`, `i32`, `i64`, `u64` or `bool`.
enum class TextType : uint8_t { f32, f64, i32, i64, u64, truth };

std::string_view name_of(TextType type);

// A number as the text writes it: rounded to the type once, to the bit what it is.
std::string literal(TextType type, double value);
std::string literal(TextType type, int64_t value);
std::string literal(bool value);

// Collects what one rule emits, then writes it. A value that is used once stands where it is used
// if it is short; others get a line and a name, t0, t1, ..
class RuleText final : public ScalarEmitter {
 public:
  RuleText();
  ~RuleText();
  RuleText(const RuleText&) = delete;

  // An operand: a name, or any expression without spaces.
  V operand(TextType type, std::string text);

  struct Written {
    std::vector<std::string> lines;  // statements, in order, rare branches indented
    std::string result;              // an expression over them
    size_t instructions = 0;         // about how many a thread executes
  };
  Written write(V result);

  V constant(LaneType type, double value) override;
  V constant(LaneType type, int64_t value) override;
  V truth(bool value) override;
  V unary(Unary op, V x) override;
  V binary(Binary op, V a, V b) override;
  V compare(Compare op, V a, V b) override;
  V select(V condition, V a, V b) override;
  V fma(V a, V b, V c) override;
  V to_bits(V x) override;
  V from_bits(V x) override;
  V fmod(V a, V b) override;
  void begin_rare(V condition) override;
  void join_rare() override;
  void end_rare() override;

 private:
  struct Expression;
  struct Rare;
  // What stands in a block: an expression, or a branch.
  struct Item {
    Expression* expression = nullptr;
    Rare* rare = nullptr;
  };
  using Block = std::vector<Item>;

  static Expression& of(V v);
  // `pattern` has a {} for each operand; `loose` says that it wants parentheses inside another.
  V add(TextType type, std::string pattern, bool loose, std::initializer_list<V> operands);
  V leaf(TextType type, std::string text, bool loose);
  void find_uses(Expression& result);
  std::string text(const Expression& e, bool nested) const;
  void write_block(const Block& block, const std::string& indent, Written& to);

  std::deque<Expression> expressions_;
  std::deque<Rare> rares_;
  Block body_;
  Rare* rare_ = nullptr;  // between begin_rare and end_rare
  bool joining_ = false;
  Expression* result_ = nullptr;
  int named_ = 0;
};

}  // namespace gradus::fusion::cuda
