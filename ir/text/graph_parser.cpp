#include "ir/text/graph_parser.h"

#include <algorithm>

#include "ir/text/name_index.h"
#include "ir/text/printer.h"
#include "ir/text/settle.h"
#include "ir/text/verifier.h"
#include "ops/registry.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

class GraphParser {
 public:
  GraphParser(Cursor& cursor, std::string name, std::shared_ptr<const Source> source,
              GraphFinder& others)
      : c_(cursor), others_(others), start_(cursor), index_(graph_) {
    graph_.name = std::move(name);
    graph_.source = std::move(source);
  }

  Graph run() {
    SourceLocation where = c_.where();
    c_.expect(TokenKind::left_brace, "after the graph's name");
    while (c_.accept("stage")) stage();
    if (!c_.accept(TokenKind::right_brace)) c_.fail_expected("stage or '}'");
    if (graph_.stages.empty())
      c_.fail(where, "the graph '{}' has no stage; it needs at least stage 0 [V1]", graph_.name);
    verify_but_types(graph_);
    return std::move(graph_);
  }

 private:
  size_t number() const { return graph_.stages.size() - 1; }

  void stage() {
    SourceLocation where = c_.where();
    uint64_t n = c_.count(UINT32_MAX, "a stage's number");
    if (n != graph_.stages.size())
      c_.fail(where, "expected stage {}, found stage {}; stages are numbered from 0 in order",
              graph_.stages.size(), n);
    graph_.stages.emplace_back();
    c_.restrict_dimensions(nullptr);
    inputs();
    c_.restrict_dimensions(&known_);
    c_.expect(TokenKind::left_brace, "after the stage's inputs");
    while (c_.at(TokenKind::value)) node();
    returns();
    c_.expect(TokenKind::right_brace, "after the stage's results");
  }

  void inputs() {
    c_.expect(TokenKind::left_parenthesis, "and the stage's inputs");
    std::vector<SourceLocation> places;
    while (!c_.at(TokenKind::right_parenthesis)) {
      if (!places.empty()) c_.expect(TokenKind::comma, "or ')' after an input");
      places.push_back(c_.where());
      Token t = c_.expect(TokenKind::value, "as an input");
      std::string name = t.content();
      c_.expect(TokenKind::colon, fmt::format("and a type after the input '%{}'", name));
      SourceLocation type_place = c_.where();
      WrittenType written = c_.type();
      if (auto why = why_no_input(written.type); !why.empty())
        c_.fail(type_place, "the input '%{}' {}", name, why);
      for (size_t d : written.any) written.type.dims[d] = Dim::symbol(fresh_dimension());
      graph_.stages.back().inputs.push_back(
          define(std::move(written.type), std::move(name), t.where));
    }
    c_.take();
    std::vector<const Type*> types;
    for (ValueId v : graph_.stages.back().inputs) types.push_back(&graph_[v].type);
    if (auto unsettled = settle_names(types, known_))
      c_.fail(places[unsettled->input],
              "the size '{}' cannot be found from the inputs' shapes: it stands only in '{}' of '%{}'; "
              "let an input have it as a dimension of its own [V12]",
              unsettled->name, unsettled->size.to_string(),
              graph_[graph_.stages.back().inputs[unsettled->input]].name);
  }

  // s0, s1, …: the first that the graph's text does not use.
  std::string fresh_dimension() {
    if (!names_collected_) {
      names_collected_ = true;
      Cursor end = start_;
      end.skip_block();
      for (Cursor c = start_; !c.at(TokenKind::end); c.take()) {
        if (end.where() == c.where()) break;
        if (c.at(TokenKind::name)) taken_.insert(std::string(c.peek().text));
      }
    }
    std::string name;
    do name = fmt::format("s{}", fresh_++);
    while (taken_.contains(name));
    return name;
  }

  ValueId define(Type type, std::string name, SourceLocation where) {
    ValueId v = graph_.add_value(std::move(type), std::move(name), number());
    if (!index_.insert(v))
      c_.fail(where, "'%{}' is defined already; a value is defined once, choose another name [V3]",
              graph_[v].name);
    return v;
  }

  struct WrittenResult {
    std::string name;
    SourceLocation where;
    std::optional<WrittenType> type;
    SourceLocation type_where;
  };

  void node() {
    Node node;
    node.where = c_.where();
    SmallVector<WrittenResult, 2> results;
    do {
      Token t = c_.expect(TokenKind::value, "as a result");
      WrittenResult r{t.content(), t.where, {}, {}};
      if (c_.accept(TokenKind::colon)) {
        r.type_where = c_.where();
        r.type = c_.type();
      }
      results.push_back(std::move(r));
    } while (c_.accept(TokenKind::comma));
    c_.expect(TokenKind::equals, "and an operator after the result");
    SourceLocation op_place = c_.where();
    node.op = find_operator();
    operands(node);
    attributes(node, op_place, results);
    SmallVector<Type, 2> types;
    try {
      types = ops::infer(graph_, node, nullptr);
    } catch (const Error& e) {
      fail_at(*graph_.source, node.where, e.bare());
    }
    if (types.size() != results.size())
      c_.fail(node.where, "'{}' gives {} result{} here, {} {} named", node.op->name, types.size(),
              types.size() == 1 ? "" : "s", results.size(), results.size() == 1 ? "is" : "are");
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].type) check_type(results[i], types[i]);
      node.results.push_back(define(std::move(types[i]), std::move(results[i].name), results[i].where));
    }
    graph_.stages.back().nodes.push_back(std::move(node));
  }

  void check_type(const WrittenResult& r, const Type& type) {
    const Type& written = r.type->type;
    bool fits = written.kind == type.kind && written.dtype == type.dtype &&
                written.device == type.device && written.dims.size() == type.dims.size();
    for (size_t d = 0; fits && d < type.dims.size(); ++d) {
      bool any = std::find(r.type->any.begin(), r.type->any.end(), d) != r.type->any.end();
      fits = any || written.dims[d] == type.dims[d];
    }
    if (!fits)
      c_.fail(r.type_where, "'%{}' is {}, and not what is written here", r.name, to_string(type));
  }

  const Operator* find_operator() {
    if (!c_.at(TokenKind::name)) c_.fail_expected("an operator's name");
    Token t = c_.take();
    const Operator* op = ops::find(t.text);
    if (op) return op;
    std::string hint;
    for (std::string_view s : ops::similar(t.text))
      hint += fmt::format("{}'{}'", hint.empty() ? "; did you mean " : " or ", s);
    c_.fail(t.where, "there is no operator '{}'{}", t.text, hint);
  }

  void operands(Node& node) {
    c_.expect(TokenKind::left_parenthesis, "and the operands");
    while (!c_.at(TokenKind::right_parenthesis)) {
      if (!node.operands.empty()) c_.expect(TokenKind::comma, "or ')' after an operand");
      node.operands.push_back(operand());
    }
    c_.take();
  }

  Operand operand() {
    if (c_.at(TokenKind::value)) return use(c_.take());
    if (c_.accept("none")) return {};
    if (c_.at("true") || c_.at("false")) return Number::of(c_.take().text == "true");
    if (c_.at_floating()) return Number::of(c_.floating());
    bool begins = c_.at(TokenKind::integer) || c_.at(TokenKind::minus) || c_.at(TokenKind::name) ||
                  c_.at(TokenKind::left_parenthesis);
    if (!begins) c_.fail_expected("an operand: a %value, a number, a size or none");
    Dim d = c_.dim();
    if (d.is_constant()) return Number::of(d.value());
    return d;
  }

  ValueId use(const Token& t) {
    std::string escaped;
    std::string_view name = t.text;
    if (t.escaped) name = escaped = t.content();
    ValueId v = index_.find(name);
    if (v != no_value) return v;
    std::string hint;
    if (graph_.values.size() < 10'000) {
      std::vector<std::string_view> names;
      for (const Value& value : graph_.values) names.push_back(value.name);
      hint = did_you_mean(name, names, "%");
    }
    c_.fail(t.where, "'%{}' is not defined before it is used here{} [V4]", name, hint);
  }

  void attributes(Node& node, SourceLocation op_place, std::span<const WrittenResult> results) {
    LiteralList list;
    if (c_.accept(TokenKind::left_brace)) {
      while (!c_.at(TokenKind::right_brace)) {
        if (!list.empty()) c_.expect(TokenKind::comma, "or '}' after an attribute");
        NamedLiteral a;
        a.where = c_.where();
        a.name = c_.name("an attribute's name");
        c_.expect(TokenKind::equals, fmt::format("after the attribute '{}'", a.name));
        a.value = c_.literal();
        list.push_back(std::move(a));
      }
      c_.take();
    }
    try {
      node.attributes = node.op->read(list);
    } catch (const Error& e) {
      fail_at(*graph_.source, e.where().known() ? e.where() : op_place,
              fmt::format("{}: {}", node.op->name, e.bare()));
    }
    if (node.op == &ops::operator_record<ops::Call>) resolve(node, list, op_place);
    bool typed = results.size() == 1 && results[0].type;
    if (node.op == &ops::operator_record<ops::Undefined> && typed && list.empty()) {
      const Type& type = results[0].type->type;
      node.attributes = ops::make_attributes(ops::Undefined::Attr{type.dtype, type.dims});
    }
  }

  void resolve(Node& node, const LiteralList& list, SourceLocation op_place) {
    auto place = [&](std::string_view name) {
      for (const NamedLiteral& a : list)
        if (a.name == name) return a.where;
      return op_place;
    };
    auto call = ops::attributes_as<ops::Call::Attr>(node.attributes);
    call.target = others_.find(call.graph, place("graph"));
    if (call.vjp) call.vjp_target = others_.find(*call.vjp, place("vjp"));
    node.attributes = ops::make_attributes(std::move(call));
  }

  void returns() {
    if (!c_.at("return")) c_.fail_expected("a node (%name = ...) or return");
    c_.take();
    std::vector<Result>& results = graph_.stages.back().results;
    DimensionNames names;
    while (!c_.at(TokenKind::right_brace)) {
      if (!results.empty()) c_.expect(TokenKind::comma, "or '}' after a result");
      SourceLocation where = c_.where();
      Result r;
      bool named = !c_.at(TokenKind::value) && !c_.at("none");
      if (named) {
        r.name = c_.name("a result, %value or name = %value");
        c_.expect(TokenKind::equals, fmt::format("after the result's name '{}'", r.name));
      }
      if (c_.at(TokenKind::value)) {
        Token t = c_.take();
        r.value = use(t);
        if (!named) r.name = graph_[r.value].name;
      } else if (c_.accept("none")) {
        if (!named) c_.fail(where, "a result that is none needs a name: name = none [V10]");
      } else {
        c_.fail_expected("a %value or none");
      }
      if (!names.insert(r.name).second)
        c_.fail(where, "stage {} returns '{}' twice; give one of them another name: name = ... [V10]",
                number(), r.name);
      results.push_back(std::move(r));
    }
  }

  Cursor& c_;
  GraphFinder& others_;
  Cursor start_;  // at the graph's '{'
  Graph graph_;
  NameIndex index_;
  DimensionNames known_;  // names of sizes that inputs have settled so far
  bool names_collected_ = false;
  DimensionNames taken_;  // names that stand in the graph's text
  size_t fresh_ = 0;
};

}  // namespace

Graph parse_graph(Cursor& cursor, const std::string& name, std::shared_ptr<const Source> source,
                  GraphFinder& others) {
  return GraphParser(cursor, name, std::move(source), others).run();
}

}  // namespace gradus::ir
