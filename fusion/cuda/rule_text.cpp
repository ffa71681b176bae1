#include "fusion/cuda/rule_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/error.h"

namespace gradus::fusion::cuda {

namespace {

// Characters of an expression that gets no line of its own, and of one that is the result.
constexpr size_t longest_inside = 32, longest_result = 80;

bool is_floating(TextType t) { return t == TextType::f32 || t == TextType::f64; }

TextType type_of(LaneType t) {
  switch (t) {
    case LaneType::f32:
      return TextType::f32;
    case LaneType::f64:
      return TextType::f64;
    case LaneType::i32:
      return TextType::i32;
    case LaneType::u64:
      return TextType::u64;
    case LaneType::i64:
      break;
  }
  return TextType::i64;
}

}  // namespace

std::string_view name_of(TextType type) {
  constexpr std::string_view names[] = {"float", "double", "i32", "i64", "u64", "bool"};
  return names[static_cast<size_t>(type)];
}

std::string literal(TextType type, double value) {
  const bool narrow = type == TextType::f32;
  if (narrow) value = static_cast<double>(static_cast<float>(value));
  if (std::isnan(value)) return narrow ? "not_a_number_f32()" : "not_a_number_f64()";
  if (std::isinf(value))
    return fmt::format("{}infinity_{}()", value < 0 ? "-" : "", narrow ? "f32" : "f64");
  // Short decimals stay readable; others are written to the bit.
  std::string s = narrow ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
  if (s.size() > 9) s = fmt::format("{:a}", value);
  if (s.find_first_of(".pe") == std::string::npos) s += ".0";
  return narrow ? s + 'f' : s;
}

std::string literal(TextType type, int64_t value) {
  if (type == TextType::i32) {
    if (value == std::numeric_limits<int32_t>::min()) return "i32(0x80000000u)";
    return fmt::format("{}", static_cast<int32_t>(value));
  }
  if (type == TextType::u64) return fmt::format("{}ull", static_cast<uint64_t>(value));
  if (value == std::numeric_limits<int64_t>::min()) return "i64(0x8000000000000000ull)";
  const bool wide = value != static_cast<int32_t>(value);
  return fmt::format("{}{}", value, wide ? "ll" : "");
}

std::string literal(bool value) { return value ? "true" : "false"; }

struct RuleText::Expression {
  TextType type;
  std::string pattern;  // as add() has it; of leaves the text
  bool loose = false, leaf = false, number = false;
  SmallVector<Expression*, 3> operands;
  const Rare* inside = nullptr;  // the branch it stands in
  Rare* joins = nullptr;         // of what joins a branch: operands are what it gave, and what else
  // Known when it is written.
  int uses = 0;
  const Rare* user = nullptr;  // the branch of its user
  std::string name;
};

struct RuleText::Rare {
  Expression* condition;
  Block body;
  std::vector<Expression*> results;
};

RuleText::RuleText() = default;
RuleText::~RuleText() = default;

RuleText::Expression& RuleText::of(V v) { return *reinterpret_cast<Expression*>(v); }

ScalarEmitter::V RuleText::leaf(TextType type, std::string text, bool loose) {
  Expression& e = expressions_.emplace_back();
  e.type = type;
  e.pattern = std::move(text);
  e.leaf = true;
  e.loose = loose;
  return reinterpret_cast<V>(&e);
}

ScalarEmitter::V RuleText::operand(TextType type, std::string text) {
  return leaf(type, std::move(text), false);
}

ScalarEmitter::V RuleText::constant(LaneType type, double value) {
  std::string s = literal(type_of(type), value);
  const bool negative = s[0] == '-';
  return leaf(type_of(type), std::move(s), negative);
}
ScalarEmitter::V RuleText::constant(LaneType type, int64_t value) {
  if (type == LaneType::f32 || type == LaneType::f64)
    return constant(type, static_cast<double>(value));
  std::string s = literal(type_of(type), value);
  const bool negative = s[0] == '-';
  const V v = leaf(type_of(type), std::move(s), negative);
  of(v).number = true;
  return v;
}
ScalarEmitter::V RuleText::truth(bool value) {
  return leaf(TextType::truth, literal(value), false);
}

ScalarEmitter::V RuleText::add(TextType type, std::string pattern, bool loose,
                               std::initializer_list<V> operands) {
  Expression& e = expressions_.emplace_back();
  e.type = type;
  e.pattern = std::move(pattern);
  e.loose = loose;
  e.inside = rare_;
  for (V v : operands) e.operands.push_back(&of(v));
  (rare_ ? rare_->body : body_).push_back({&e, nullptr});
  return reinterpret_cast<V>(&e);
}

ScalarEmitter::V RuleText::unary(Unary op, V x) {
  const TextType t = of(x).type;
  const char* suffix = t == TextType::f32 ? "f" : "";
  auto call = [&](const char* function) {
    return add(t, fmt::format("{}{}({{}})", function, suffix), false, {x});
  };
  switch (op) {
    case Unary::negate:
      if (is_floating(t)) return add(t, "-{}", true, {x});
      if (t == TextType::u64) return add(t, "u64(0ull - {})", false, {x});
      return add(t, t == TextType::i32 ? "i32(0u - u32({}))" : "i64(0ull - u64({}))", false, {x});
    case Unary::abs:
      return call("fabs");
    case Unary::sqrt:
      return call("sqrt");
    case Unary::floor:
      return call("floor");
    case Unary::ceil:
      return call("ceil");
    case Unary::trunc:
      return call("trunc");
    case Unary::round_even:
      break;
  }
  return call("rint");
}

namespace {

// Signed overflow means nothing in C++: integers are added, subtracted, multiplied and shifted as
// unsigned ones. A number as second operand becomes one by itself.
std::string wrapping(TextType t, const char* op, bool number, bool by_lane = false) {
  const char* u = t == TextType::i32 ? "u32" : "u64";
  const std::string second = number ? "{}" : fmt::format("{}({{}})", by_lane ? "u32" : u);
  return fmt::format("{}({}({{}}) {} {})", name_of(t), u, op, second);
}

}  // namespace

ScalarEmitter::V RuleText::binary(Binary op, V a, V b) {
  const TextType t = of(a).type;
  auto infix = [&](const char* symbol) {
    return add(t, fmt::format("{{}} {} {{}}", symbol), true, {a, b});
  };
  auto arithmetic = [&](const char* symbol) {
    return is_floating(t) ? infix(symbol)
                          : add(t, wrapping(t, symbol, of(b).number), false, {a, b});
  };
  switch (op) {
    case Binary::add:
      return arithmetic("+");
    case Binary::subtract:
      return arithmetic("-");
    case Binary::multiply:
      return arithmetic("*");
    case Binary::divide:
    case Binary::divide_unsigned:
      return infix("/");
    case Binary::remainder:
    case Binary::remainder_unsigned:
      return infix("%");
    case Binary::bit_and:
      return infix(t == TextType::truth ? "&&" : "&");
    case Binary::bit_or:
      return infix(t == TextType::truth ? "||" : "|");
    case Binary::bit_xor:
      if (t == TextType::truth && of(b).leaf && of(b).pattern == "true")
        return add(t, "!{}", true, {a});
      return infix(t == TextType::truth ? "!=" : "^");
    case Binary::shift_left:
      return add(t, wrapping(t, "<<", of(b).number, true), false, {a, b});
    case Binary::shift_right:
      return infix(">>");
    case Binary::shift_right_logical:
      return add(t, wrapping(t, ">>", of(b).number, true), false, {a, b});
    case Binary::copysign:
      break;
  }
  return add(t, t == TextType::f32 ? "copysignf({}, {})" : "copysign({}, {})", false, {a, b});
}

ScalarEmitter::V RuleText::compare(Compare op, V a, V b) {
  // The operands' types say whether they are unsigned.
  constexpr const char* patterns[] = {"{} == {}", "{} != {}", "{} < {}",  "{} <= {}", "{} > {}",
                                      "{} >= {}", "{} < {}",  "{} <= {}", "{} > {}",  "{} >= {}"};
  return add(TextType::truth, patterns[static_cast<size_t>(op)], true, {a, b});
}

ScalarEmitter::V RuleText::select(V condition, V a, V b) {
  if (!joining_) return add(of(a).type, "{} ? {} : {}", true, {condition, a, b});
  Expression& e = expressions_.emplace_back();
  e.type = of(a).type;
  e.joins = rare_;
  e.operands.push_back(&of(a));
  e.operands.push_back(&of(b));
  rare_->results.push_back(&e);
  return reinterpret_cast<V>(&e);
}

ScalarEmitter::V RuleText::fma(V a, V b, V c) {
  const TextType t = of(a).type;
  return add(t, t == TextType::f32 ? "fmaf({}, {}, {})" : "fma({}, {}, {})", false, {a, b, c});
}

ScalarEmitter::V RuleText::to_bits(V x) {
  const bool narrow = of(x).type == TextType::f32;
  return add(narrow ? TextType::i32 : TextType::i64,
             narrow ? "__float_as_int({})" : "__double_as_longlong({})", false, {x});
}
ScalarEmitter::V RuleText::from_bits(V x) {
  const bool narrow = of(x).type == TextType::i32;
  return add(narrow ? TextType::f32 : TextType::f64,
             narrow ? "__int_as_float({})" : "__longlong_as_double({})", false, {x});
}

ScalarEmitter::V RuleText::fmod(V a, V b) {
  return add(of(a).type,
             of(a).type == TextType::f32 ? "exact_fmod_f32({}, {})" : "exact_fmod_f64({}, {})",
             false, {a, b});
}

void RuleText::begin_rare(V condition) {
  GRADUS_CHECK(!rare_);  // one in another would want a stack
  rare_ = &rares_.emplace_back();
  rare_->condition = &of(condition);
  body_.push_back({nullptr, rare_});
}
void RuleText::join_rare() { joining_ = true; }
void RuleText::end_rare() {
  joining_ = false;
  rare_ = nullptr;
}

// Counts uses, from the result back.
void RuleText::find_uses(Expression& result) {
  auto use = [](Expression& e, const Rare* where) {
    ++e.uses;
    e.user = where;
  };
  use(result, nullptr);
  for (auto e = expressions_.rbegin(); e != expressions_.rend(); ++e) {
    if (e->uses == 0) continue;
    if (e->joins) {
      use(*e->operands[0], e->joins);
      use(*e->operands[1], nullptr);
      use(*e->joins->condition, nullptr);
    } else {
      for (Expression* o : e->operands) use(*o, e->inside);
    }
  }
}

std::string RuleText::text(const Expression& e, bool nested) const {
  if (!e.name.empty()) return e.name;
  std::string s;
  if (e.leaf) {
    s = e.pattern;
  } else {
    size_t next = 0;
    for (size_t i = 0; i < e.pattern.size(); ++i) {
      if (e.pattern.compare(i, 2, "{}") != 0) {
        s += e.pattern[i];
        continue;
      }
      // In a call or a cast operands stand between parentheses and commas, and nothing binds them.
      s += text(*e.operands[next++], e.loose);
      ++i;
    }
  }
  return nested && e.loose ? '(' + s + ')' : s;
}

void RuleText::write_block(const Block& block, const std::string& indent, Written& to) {
  auto declare = [&](Expression& e, std::string_view how, const std::string& s) {
    e.name = fmt::format("t{}", named_++);
    to.lines.push_back(fmt::format("{}{}{} {} = {};", indent, how, name_of(e.type), e.name, s));
  };
  for (const Item& item : block) {
    if (Expression* e = item.expression) {
      if (e->uses == 0) continue;
      ++to.instructions;
      const std::string s = text(*e, false);
      const size_t longest = e == result_ ? longest_result : longest_inside;
      const bool stays = e->uses == 1 && e->inside == e->user && s.size() <= longest;
      if (!stays) declare(*e, "const ", s);
      continue;
    }
    const Rare& rare = *item.rare;
    const bool used = std::any_of(rare.results.begin(), rare.results.end(),
                                  [](const Expression* e) { return e->uses > 0; });
    if (!used) continue;
    for (Expression* e : rare.results) declare(*e, "", text(*e->operands[1], false));
    to.lines.push_back(
        fmt::format("{}if ({}) {{  // rarely", indent, text(*rare.condition, false)));
    write_block(rare.body, indent + "  ", to);
    for (const Expression* e : rare.results)
      to.lines.push_back(
          fmt::format("{}  {} = {};", indent, e->name, text(*e->operands[0], false)));
    to.lines.push_back(indent + "}");
  }
}

RuleText::Written RuleText::write(V result) {
  result_ = &of(result);
  find_uses(*result_);
  Written written;
  write_block(body_, "", written);
  written.result = text(of(result), false);
  return written;
}

}  // namespace gradus::fusion::cuda
