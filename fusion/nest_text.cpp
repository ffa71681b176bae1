// Nests, read from their text.
#include <algorithm>

#include "fusion/nest.h"
#include "gradus/registry.h"
#include "ir/text/cursor.h"

namespace gradus::fusion {

namespace {

constexpr Compute computes[] = {Compute::f64, Compute::f32, Compute::i64, Compute::u64};

using ir::Cursor;
using ir::TokenKind;

class NestParser {
 public:
  explicit NestParser(const ir::Source& source) : at_(source) {}

  Nest run() {
    at_.expect("nest");
    nest_.rank = static_cast<int>(at_.count(max_rank, "the number of loops"));
    if (at_.accept("in"))
      nest_.registers = static_cast<int>(at_.count(512, "the bits of a register"));
    if (at_.accept("rows")) nest_.row_size = at_.count(most_row_size, "the elements of a row");
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
    do l.walks.push_back(one_of<Walk>(3, "contiguous, strided or broadcast"));
    while (at_.accept(TokenKind::comma));
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

  // The one of the first `count` of an enum that is named.
  template <class E>
  E one_of(int count, const char* names) {
    SourceLocation where = at_.where();
    std::string name = at_.name(names);
    for (int e = 0; e < count; ++e)
      if (name_of(static_cast<E>(e)) == name) return static_cast<E>(e);
    at_.fail(where, "expected {}, found '{}'", names, name);
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
      s.reducer = one_of<work::Reducer>(6, "sum, prod, max, min, all or any");
    else if (name != "convert" && !(s.call.op = ops::find(name)))
      at_.fail(where, "there is no operator '{}'{}", name, ops::advice(name));
    at_.expect(TokenKind::left_parenthesis);
    if (!at_.at(TokenKind::right_parenthesis)) do
        s.operands.push_back(operand());
      while (at_.accept(TokenKind::comma));
    at_.expect(TokenKind::right_parenthesis);
    if (s.call.op) s.call.attributes = attributes(*s.call.op);
    at_.expect(TokenKind::colon, "before the result's dtype");
    s.dtype = at_.dtype();
    if (s.computes()) {
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

Nest parse_nest(std::string text, std::string file) {
  ir::Source source{std::move(file), std::move(text)};
  ir::check_text(source);
  Nest nest = NestParser(source).run();
  verify(nest);
  return nest;
}

}  // namespace gradus::fusion
