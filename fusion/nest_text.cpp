// Nests as text, and back.
#include <algorithm>
#include <optional>

#include "fusion/nest.h"
#include "ir/text/cursor.h"
#include "ops/registry.h"

namespace gradus::fusion {

namespace {

constexpr std::string_view walk_names[] = {"contiguous", "strided", "broadcast"};
constexpr std::string_view reducer_names[] = {"sum", "prod", "max", "min", "all", "any"};
constexpr Compute computes[] = {Compute::f64, Compute::f32, Compute::i64};

std::string number_text(const ir::Number& n) {
  if (n.category == Category::floating) return ir::float_text(n.floating);
  if (n.category == Category::integral) return fmt::format("{}", n.integer);
  return n.integer ? "true" : "false";
}

// Whether it says what it computes in; all and any ask for truth alone.
bool computes_in(const Step& step) {
  return step.op || (step.reducer && *step.reducer != work::Reducer::all &&
                     *step.reducer != work::Reducer::any);
}

std::string step_text(const Nest& nest, size_t i) {
  const Step& step = nest.steps[i];
  const bool reduction = !step.op && step.reducer;
  std::string s = step.op     ? std::string(step.op->name)
                  : reduction ? fmt::format("reduce{} {}", step.columns ? "_columns" : "",
                                            reducer_names[static_cast<size_t>(*step.reducer)])
                              : "convert";
  s += '(';
  for (size_t k = 0; k < step.operands.size(); ++k)
    s += fmt::format("{}%v{}", k ? ", " : "", step.operands[k]);
  s += ')';
  if (step.op && step.attributes) {
    bool first = true;
    for (const ir::NamedLiteral& a : step.op->write(step.attributes)) {
      s += fmt::format("{}{} = {}", first ? " {" : ", ", a.name, to_string(a.value));
      first = false;
    }
    if (!first) s += '}';
  }
  s += fmt::format(" : {}", name_of(step.dtype));
  if (computes_in(step)) s += fmt::format(" in {}", name_of(dtype_of(step.compute)));
  if (!nest.program.empty() && step.where.known())
    s += fmt::format("  # {}:{}", step.where.line, step.where.column);
  return s;
}

using ir::Cursor;
using ir::TokenKind;

class NestParser {
 public:
  explicit NestParser(const ir::Source& source) : at_(source) {}

  Nest run() {
    at_.expect("nest");
    nest_.rank = static_cast<int>(at_.count(max_rank, "the number of loops"));
    at_.expect(TokenKind::left_brace, "before the nest's values");
    while (at_.at(TokenKind::value)) value();
    while (!at_.accept(TokenKind::right_brace)) store();
    at_.expect(TokenKind::end, "after the nest");
    return std::move(nest_);
  }

 private:
  // %v3, which must be this value's number.
  void value() {
    SourceLocation where = at_.where();
    std::string name = at_.take().content(), next = fmt::format("v{}", nest_.values());
    if (name != next) at_.fail(where, "expected %{}, the next value, found %{}", next, name);
    at_.expect(TokenKind::equals);
    where = at_.where();
    std::string what = at_.name("load, number, convert or an operator");
    bool late = (what == "load" && nest_.values() > nest_.loads.size()) ||
                (what == "number" && !nest_.steps.empty());
    if (late) at_.fail(where, "loads stand before numbers, and numbers before steps");
    if (what == "load")
      load();
    else if (what == "number")
      nest_.numbers.push_back(number());
    else
      step(what, where);
  }

  void load() {
    Load l;
    l.dtype = at_.dtype();
    at_.expect(TokenKind::left_bracket, "before how the load walks");
    do {
      SourceLocation where = at_.where();
      std::string walk = at_.name("contiguous, strided or broadcast");
      auto found = std::find(std::begin(walk_names), std::end(walk_names), walk);
      if (found == std::end(walk_names))
        at_.fail(where, "expected contiguous, strided or broadcast, found '{}'", walk);
      l.walks.push_back(static_cast<Walk>(found - walk_names));
    } while (at_.accept(TokenKind::comma));
    at_.expect(TokenKind::right_bracket);
    if (at_.accept("of"))
      l.operands = static_cast<size_t>(at_.count(most_operands, "the number of operands"));
    if (at_.accept("at")) l.index = operand();
    nest_.loads.push_back(std::move(l));
  }

  ir::Number number() {
    if (at_.at_floating()) return ir::Number::of(ir::read_floating(at_));
    SourceLocation where = at_.where();
    ir::Literal l = at_.literal();
    if (const bool* b = std::get_if<bool>(&l.value)) return ir::Number::of(*b);
    const ir::Dim* d = std::get_if<ir::Dim>(&l.value);
    if (!d || !d->is_constant()) at_.fail(where, "expected a number");
    return ir::Number::of(d->value());
  }

  work::Reducer reducer() {
    SourceLocation where = at_.where();
    std::string name = at_.name("sum, prod, max, min, all or any");
    auto found = std::find(std::begin(reducer_names), std::end(reducer_names), name);
    if (found == std::end(reducer_names))
      at_.fail(where, "expected sum, prod, max, min, all or any, found '{}'", name);
    return static_cast<work::Reducer>(found - reducer_names);
  }

  ValueNumber operand() {
    SourceLocation where = at_.where();
    std::string name = at_.expect(TokenKind::value).content();
    for (size_t v = 0; v < nest_.values(); ++v)
      if (name == fmt::format("v{}", v)) return static_cast<ValueNumber>(v);
    at_.fail(where, "%{} is not defined before", name);
  }

  void step(const std::string& name, SourceLocation where) {
    Step s;
    s.columns = name == "reduce_columns";
    if (name == "reduce" || s.columns)
      s.reducer = reducer();
    else if (name != "convert" && !(s.op = ops::find(name)))
      at_.fail(where, "there is no operator '{}'{}", name, ops::advice(name));
    at_.expect(TokenKind::left_parenthesis);
    if (!at_.at(TokenKind::right_parenthesis)) do
        s.operands.push_back(operand());
      while (at_.accept(TokenKind::comma));
    at_.expect(TokenKind::right_parenthesis);
    if (s.op) s.attributes = attributes(*s.op);
    at_.expect(TokenKind::colon, "before the result's dtype");
    s.dtype = at_.dtype();
    if (computes_in(s)) {
      at_.expect("in", "and what it is computed in");
      SourceLocation there = at_.where();
      DType dtype = at_.dtype();
      auto found = std::find_if(std::begin(computes), std::end(computes),
                                [&](Compute c) { return dtype_of(c) == dtype; });
      if (found == std::end(computes))
        at_.fail(there, "steps compute in f64, f32 or i64, not in {}", name_of(dtype));
      s.compute = *found;
    }
    nest_.steps.push_back(std::move(s));
  }

  ir::Attributes attributes(const ir::Operator& op) {
    ir::LiteralList list;
    SourceLocation where = at_.where();
    if (at_.accept(TokenKind::left_brace)) do {
        ir::NamedLiteral a;
        a.where = at_.where();
        a.name = at_.name("an attribute's name");
        at_.expect(TokenKind::equals);
        a.value = at_.literal();
        list.push_back(std::move(a));
      } while (at_.accept(TokenKind::comma));
    if (!list.empty()) at_.expect(TokenKind::right_brace, "after the attributes");
    try {
      return op.read(list);
    } catch (const Error& e) {
      at_.fail(e.where().known() ? e.where() : where, "{}: {}", op.name, e.bare());
    }
  }

  void store() {
    SourceLocation where = at_.where();
    std::string what = at_.name("store, store_row, store_column or the end of the nest");
    if (what != "store" && what != "store_row" && what != "store_column")
      at_.fail(where, "expected store, store_row, store_column or the end of the nest, found '{}'",
               what);
    auto& stores = what == "store"       ? nest_.stores
                   : what == "store_row" ? nest_.row_stores
                                         : nest_.column_stores;
    do stores.push_back(operand());
    while (at_.accept(TokenKind::comma));
  }

  Cursor at_;
  Nest nest_;
};

}  // namespace

std::string print(const Nest& nest) {
  std::string s = fmt::format("nest {} {{", nest.rank);
  if (!nest.program.empty()) {
    s += "  # of ";
    // A name is one line, whatever is in it.
    for (char c : nest.program) s += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  s += '\n';
  size_t v = 0;
  for (const Load& load : nest.loads) {
    s += fmt::format("  %v{} = load {} [", v++, name_of(load.dtype));
    for (size_t d = 0; d < load.walks.size(); ++d)
      s += fmt::format("{}{}", d ? ", " : "", walk_names[static_cast<size_t>(load.walks[d])]);
    s += ']';
    if (load.operands != 1) s += fmt::format(" of {}", load.operands);
    if (load.index) s += fmt::format(" at %v{}", *load.index);
    s += '\n';
  }
  for (const ir::Number& n : nest.numbers)
    s += fmt::format("  %v{} = number {}\n", v++, number_text(n));
  for (size_t i = 0; i < nest.steps.size(); ++i)
    s += fmt::format("  %v{} = {}\n", v++, step_text(nest, i));
  auto list = [&](const char* what, const std::vector<ValueNumber>& stores) {
    for (size_t i = 0; i < stores.size(); ++i)
      s += fmt::format("{}%v{}", i ? ", " : what, stores[i]);
    if (!stores.empty()) s += '\n';
  };
  list("  store ", nest.stores);
  list("  store_row ", nest.row_stores);
  list("  store_column ", nest.column_stores);
  return s + "}\n";
}

Nest parse_nest(std::string text, std::string file) {
  ir::Source source{std::move(file), std::move(text)};
  ir::check_text(source);
  Nest nest = NestParser(source).run();
  verify(nest);
  return nest;
}

}  // namespace gradus::fusion
