#include "ir/text/graph_parser.h"

#include <algorithm>
#include <unordered_set>

#include "gradus/messages.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "ir/text/name_index.h"
#include "ir/text/settle.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

class GraphParser {
 public:
  GraphParser(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file)
      : cursor_(cursor), file_(file), graph_(std::make_shared<Graph>()), names_(*graph_) {
    graph_->source = std::move(source);
  }

  ParsedGraph run() {
    cursor_.expect("graph");
    graph_->name = cursor_.name("the graph's name");
    cursor_.expect(TokenKind::left_brace, "after the graph's name");
    while (cursor_.accept("size")) range();
    while (cursor_.accept("require")) condition();
    if (cursor_.at(TokenKind::right_brace))
      cursor_.fail_expected("'stage 0'; a graph has at least one stage [V1]");
    while (!cursor_.accept(TokenKind::right_brace)) stage();
    return finished();
  }

  // graph [name] (inputs) { nodes return }
  ParsedGraph run_inline(std::string_view attribute) {
    cursor_.expect("graph");
    graph_->written_inline = true;
    graph_->name = cursor_.at(TokenKind::left_parenthesis)
                       ? attribute
                       : cursor_.name("the graph's name or '('");
    graph_->stages.emplace_back();
    stage_body(cursor_.where(), "the graph's name");
    return finished();
  }

 private:
  ParsedGraph finished() {
    cursor_.restrict_dimensions(nullptr);
    verify_but_types(*graph_, file_.data_sized);
    return {graph_, cursor_};
  }

  struct WrittenResult {
    Token name;
    std::optional<WrittenType> type;
    SourceLocation type_where;
  };
  using WrittenResults = SmallVector<WrittenResult, 2>;
  using Inlined = SmallVector<std::shared_ptr<const Graph>, 2>;  // in one node

  // size N from 1 to 4096, size R = ranks(data) from 2
  void range() {
    const SourceLocation where = cursor_.where();
    SizeRange range{cursor_.name("the name of a size"), 0, {}, {}};
    if (cursor_.accept(TokenKind::equals)) {
      cursor_.expect("ranks", "and a group's name: size R = ranks(data)");
      cursor_.expect(TokenKind::left_parenthesis, "and a group's name after 'ranks'");
      range.group = cursor_.name("a group's name");
      cursor_.expect(TokenKind::right_parenthesis, "after the group's name");
      dimensions_.insert(range.name);
    }
    if (cursor_.accept("from"))
      range.least = static_cast<int64_t>(cursor_.count(INT64_MAX, "the least size"));
    if (cursor_.accept("to"))
      range.most = static_cast<int64_t>(cursor_.count(INT64_MAX, "the greatest size"));
    graph_->ranges.push_back(std::move(range));
    if (std::string why = why_wrong_range(*graph_, graph_->ranges.size() - 1); !why.empty())
      cursor_.fail(where, "{}", why);
  }

  // require N - M from 0 to 8 "why"
  void condition() {
    const SourceLocation where = cursor_.where();
    SizeCondition condition{cursor_.dim(), 0, {}, {}};
    if (cursor_.accept("from"))
      condition.least = static_cast<int64_t>(cursor_.count(INT64_MAX, "the least value"));
    if (cursor_.accept("to"))
      condition.most = static_cast<int64_t>(cursor_.count(INT64_MAX, "the greatest value"));
    if (cursor_.at(TokenKind::string)) condition.words = cursor_.name("the condition's text");
    if (std::string why = why_wrong_condition(condition); !why.empty())
      cursor_.fail(where, "{}", why);
    graph_->conditions.push_back(std::move(condition));
  }

  size_t stage_number() const { return graph_->stages.size() - 1; }

  void stage() {
    SourceLocation start = cursor_.where();
    cursor_.expect("stage", "or '}' at the end of the graph");
    Token number = cursor_.peek();
    uint64_t n = cursor_.count(UINT32_MAX, "the stage's number");
    if (n != graph_->stages.size())
      cursor_.fail(number.where,
                   "expected stage {}, found stage {}; stages are numbered 0, 1, 2, …",
                   graph_->stages.size(), n);
    graph_->stages.emplace_back();
    stage_body(start, "the stage's number");
  }

  void stage_body(SourceLocation start, std::string_view before) {
    inputs(start, before);
    cursor_.expect(TokenKind::left_brace, "after the inputs");
    while (cursor_.at(TokenKind::value)) node();
    if (!cursor_.accept("return")) fail_no_node();
    results();
  }

  [[noreturn]] void fail_no_node() const {
    if (!cursor_.at(TokenKind::name))
      cursor_.fail_expected("a node or 'return', which ends every stage");
    const std::string found = printable(cursor_.peek().text);
    const TokenKind next = cursor_.peek_second().kind;
    const bool result =
        next == TokenKind::equals || next == TokenKind::comma || next == TokenKind::colon;
    cursor_.fail(cursor_.where(), "expected a node (%name = operator(…)) or 'return', found '{}'{}",
                 found, result ? fmt::format("; a value is written '%{}'", found) : "");
  }

  void inputs(SourceLocation start, std::string_view before) {
    cursor_.restrict_dimensions(nullptr);
    cursor_.expect(TokenKind::left_parenthesis, fmt::format("and inputs after {}", before));
    std::vector<SourceLocation> places;
    while (!cursor_.accept(TokenKind::right_parenthesis)) {
      if (!places.empty()) {
        if (!cursor_.accept(TokenKind::comma)) cursor_.fail_expected("',' or ')' after an input");
      }
      Token name = cursor_.expect(TokenKind::value, "for an input");
      cursor_.expect(TokenKind::colon,
                     fmt::format("and a type after the input '%{}'", printable(name.text)));
      places.push_back(cursor_.where());
      WrittenType written = cursor_.type();
      for (size_t i : written.any) written.type.dims[i] = Dim::symbol(fresh_dimension());
      if (std::string why = why_no_input(written.type); !why.empty())
        cursor_.fail(places.back(), "the input '%{}' {}", printable(name.text), why);
      check_device(name, written.type, places.back());
      graph_->stages.back().inputs.push_back(define(name, std::move(written.type)));
    }
    settle(places, start);
    cursor_.restrict_dimensions(&dimensions_);
  }

  // Before the verifier does, with the place.
  void check_device(const Token& name, const Type& type, SourceLocation where) {
    if (type.device == Device()) return;
    for (const Stage& stage : graph_->stages)
      for (ValueId v : stage.inputs) {
        const Device other = (*graph_)[v].type.device;
        if (other == Device()) continue;
        if (other != type.device)
          cursor_.fail(where,
                       "the input '%{}' lies on {}, another one on {}; a program runs on one "
                       "device [V13]",
                       printable(name.text), to_string(type.device), to_string(other));
        return;
      }
  }

  void settle(const std::vector<SourceLocation>& places, SourceLocation start) {
    std::vector<const Type*> types;
    for (ValueId v : graph_->stages.back().inputs) types.push_back(&(*graph_)[v].type);
    if (auto unsettled = settle_names(types, dimensions_))
      cursor_.fail(unsettled->input < places.size() ? places[unsettled->input] : start,
                   "no input determines the size '{}', which {} needs: one must have a dimension "
                   "'{}' [V12]",
                   unsettled->name, unsettled->size.to_string(), unsettled->name);
  }

  // s0, s1, … as far as they stand nowhere in the file.
  std::string fresh_dimension() {
    for (;;) {
      std::string name = fmt::format("s{}", next_fresh_++);
      if (!file_.mentions(name)) return name;
    }
  }

  ValueId define(const Token& token, Type type) {
    std::string name = token.content();
    if (name.empty()) cursor_.fail(token.where, "a value's name is empty");
    ValueId v = graph_->add_value(std::move(type), std::move(name), stage_number());
    if (!names_.insert(v))
      cursor_.fail(token.where,
                   "stage {}: '%{}' is defined already{}; a value is defined once [V3]",
                   stage_number(), printable(token.text),
                   place_of_definition(names_.find((*graph_)[v].name)));
    return v;
  }

  // ", in line 12"
  std::string place_of_definition(ValueId v) const {
    for (const Stage& stage : graph_->stages)
      for (const Node& node : stage.nodes)
        for (ValueId r : node.results)
          if (r == v) return fmt::format(", in line {}", node.where.line);
    return fmt::format(", as an input of stage {}", (*graph_)[v].stage);
  }

  ValueId use(const Token& token) {
    ValueId v = token.escaped ? names_.find(token.content()) : names_.find(token.text);
    if (v != no_value) return v;
    if (uint32_t line = later_definition(token.content()))
      cursor_.fail(
          token.where,
          "stage {}: '%{}' is defined only later, in line {}; a value is defined before it "
          "is used [V4]",
          stage_number(), printable(token.text), line);
    std::vector<std::string_view> names;
    for (const Value& value : graph_->values) names.push_back(value.name);
    cursor_.fail(token.where, "stage {}: '%{}' is not defined{} [V4]", stage_number(),
                 printable(token.text), did_you_mean(token.text, names, "%"));
  }

  // The line of the text behind the cursor in which a value of that name is defined in this graph;
  // 0 if there is none, or if what follows is no program.
  uint32_t later_definition(const std::string& name) const {
    Cursor c = cursor_;
    int parentheses = 0, braces = 2;
    bool returning = false;
    try {
      for (; !c.at(TokenKind::end) && braces > 0; c.take()) {
        TokenKind kind = c.peek().kind;
        parentheses +=
            (kind == TokenKind::left_parenthesis) - (kind == TokenKind::right_parenthesis);
        braces += (kind == TokenKind::left_brace) - (kind == TokenKind::right_brace);
        if (c.at("return")) returning = true;
        if (kind == TokenKind::right_brace) returning = false;
        if (kind != TokenKind::value || returning || c.peek().content() != name) continue;
        TokenKind next = c.peek_second().kind;
        // Results stand outside parentheses, inputs before a colon.
        bool result = parentheses <= 0 && (next == TokenKind::comma || next == TokenKind::equals);
        if (result || next == TokenKind::colon) return c.where().line;
      }
    } catch (const Error&) {  // the text is broken further on: said when it is reached
    }
    return 0;
  }

  void node() {
    WrittenResults written;
    do {
      WrittenResult r{cursor_.expect(TokenKind::value, "for a result"), {}, {}};
      if (cursor_.accept(TokenKind::colon)) {
        r.type_where = cursor_.where();
        r.type = cursor_.type();
      }
      written.push_back(std::move(r));
    } while (cursor_.accept(TokenKind::comma));
    if (!cursor_.accept(TokenKind::equals))
      cursor_.fail_expected("'=', ':' or ',' after a result's name");
    if (!cursor_.at(TokenKind::name))
      cursor_.fail_expected("the name of an operator, as in %y = mul(%a, %b)");
    Token op = cursor_.take();
    Node node;
    node.where = op.where;
    node.op = ops::find(op.text);
    if (!node.op) unknown_operator(op);
    operands(node);
    read_attributes(node, written);
    finish(std::move(node), written);
  }

  [[noreturn]] void unknown_operator(const Token& op) const {
    cursor_.fail(op.where, "there is no operator '{}'{}", printable(op.text), ops::advice(op.text));
  }

  void operands(Node& node) {
    if (!cursor_.accept(TokenKind::left_parenthesis))
      cursor_.fail_expected(fmt::format("'(' after '{}'", node.op->name));
    bool first = true;
    while (!cursor_.accept(TokenKind::right_parenthesis)) {
      if (!first && !cursor_.accept(TokenKind::comma))
        cursor_.fail_expected("',' or ')' after an operand");
      first = false;
      node.operands.push_back(operand(node));
    }
    while (!node.operands.empty() && is_none(node.operands.back())) node.operands.pop_back();
  }

  Operand operand(const Node& node) {
    if (cursor_.at(TokenKind::value)) {
      Token token = cursor_.take();
      ValueId v = use(token);
      if (!(*graph_)[v].type.is_tensor() && !node.op->traits.takes_handle)
        cursor_.fail(token.where, "stage {}: '%{}' is a handle, which only `eval` takes [V8]",
                     stage_number(), printable(token.text));
      return v;
    }
    if (cursor_.accept("none")) return std::monostate();
    if (cursor_.accept("true")) return Number::of(true);
    if (cursor_.accept("false")) return Number::of(false);
    if (cursor_.at_floating()) return Number::of(read_floating(cursor_));
    switch (cursor_.peek().kind) {
      case TokenKind::name:
        check_named_size(node);
        break;
      case TokenKind::integer:
      case TokenKind::minus:
      case TokenKind::left_parenthesis:
        break;
      default:
        cursor_.fail_expected("an operand (%name, a number, a size, or none)");
    }
    Dim d = cursor_.dim();
    if (d.is_constant()) return Number::of(d.value());
    return d;
  }

  // A plain name in the place of an operand is a size. Refuses what else may have been meant.
  void check_named_size(const Node& node) const {
    const Token& token = cursor_.peek();
    // max and min begin sizes; other reserved words and numbers without a digit are refused there.
    if (is_reserved(token.text) || token.text.starts_with('.')) return;
    const std::string name = printable(token.text);
    const TokenKind next = cursor_.peek_second().kind;
    if (next == TokenKind::left_parenthesis)
      cursor_.fail(token.where,
                   "expected an operand (%name, a number, a size, or none), found a call of '{0}'; "
                   "write the call as a node of its own, %v = {0}(…), and its result '%v' here",
                   name);
    if (next == TokenKind::equals)
      cursor_.fail(token.where,
                   "expected an operand (%name, a number, a size, or none), found the attribute "
                   "'{0}'; attributes stand in braces after the operands: {1}(…) {{{0} = …}}",
                   name, node.op->name);
    if (dimensions_.contains(token.content())) return;
    std::vector<std::string_view> sizes;
    if (names_.find(token.text) == no_value) sizes.assign(dimensions_.begin(), dimensions_.end());
    std::ranges::sort(sizes);
    cursor_.fail(
        token.where,
        "expected an operand, found '{0}'; a value is written '%{0}', and no input of this "
        "stage or of an earlier one determines a size '{0}'{1} [V12]",
        name, did_you_mean(token.text, sizes));
  }

  void read_attributes(Node& node, const WrittenResults& written) {
    LiteralList list;
    Inlined inlined;
    if (cursor_.accept(TokenKind::left_brace)) {
      while (!cursor_.accept(TokenKind::right_brace)) {
        if (!list.empty() && !cursor_.accept(TokenKind::comma))
          cursor_.fail_expected("',' or '}' after an attribute");
        Token name = cursor_.expect(TokenKind::name, "of an attribute");
        cursor_.expect(TokenKind::equals, "after the attribute's name");
        if (node.op->data_sized && name.content() == "count") settle_by_data();
        if (node.op->graphs && at_inline_graph()) {
          inlined.push_back(inline_graph(name));
          list.push_back({name.content(), inlined.back()->name, name.where});
          continue;
        }
        if (node.op->graphs && at_begin_of_graph())
          cursor_.fail_expected("a literal or a graph (graph (…) {…})");
        list.push_back({name.content(), cursor_.literal(), name.where});
      }
    }
    if (ops::is_undefined(node)) type_as_attributes(written, list);
    try {
      node.attributes = node.op->read(list);
    } catch (const Error& e) {
      cursor_.fail(e.where().known() ? e.where() : node.where, "{}: {}", node.op->name, e.bare());
    }
    if (node.op->graphs) resolve_graphs(node, list, inlined);
  }

  // Where only a name can stand, `graph` and no graph behind it is the name of a size.
  bool at_inline_graph() const { return cursor_.at("graph") && at_begin_of_graph(); }

  // At a name and what stands behind `graph`? Behind max and min it begins sizes.
  bool at_begin_of_graph() const {
    if (!cursor_.at(TokenKind::name) || cursor_.at("max") || cursor_.at("min")) return false;
    const TokenKind next = cursor_.peek_second().kind;
    return next == TokenKind::left_parenthesis || next == TokenKind::name ||
           next == TokenKind::string;
  }

  std::shared_ptr<const Graph> inline_graph(const Token& attribute) {
    ParsedGraph parsed = file_.inline_graph(attribute.content(), cursor_);
    cursor_ = parsed.behind;
    cursor_.restrict_dimensions(&dimensions_);
    return std::move(parsed.graph);
  }

  // A name that stands for the count of what data picks is known from there on.
  void settle_by_data() {
    const Token& token = cursor_.peek();
    if (token.kind == TokenKind::name) dimensions_.insert(std::string(token.text));
  }

  // Gives what data picks a count, where none is written.
  void name_count(Node& node) {
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node.operands) types.push_back(graph_->type_of(o));
    if (!ops::lacks_count(*node.op, node.attributes, types)) return;
    std::string name = fresh_dimension();
    dimensions_.insert(name);
    node.attributes = ops::with_count(*node.op, node.attributes, Dim::symbol(name));
  }

  // `%u: f32[N] = undefined()`
  void type_as_attributes(const WrittenResults& written, LiteralList& list) const {
    if (!list.empty() || written.empty() || !written[0].type) return;
    const WrittenType& type = *written[0].type;
    if (!type.any.empty() || !type.type.is_tensor())
      cursor_.fail(written[0].type_where, "an undefined value needs a tensor type without '?'");
    list.push_back({"dtype", type.type.dtype, written[0].type_where});
    list.push_back({"shape", Literal::list(type.type.dims), written[0].type_where});
  }

  void resolve_graphs(Node& node, const LiteralList& list, const Inlined& inlined) {
    SmallVector<std::shared_ptr<const Graph>, 2> graphs;
    const auto all = ops::graphs_in(node);
    for (const ops::GraphName* named : all) {
      auto own = std::ranges::find(inlined, named->name, [](const auto& g) { return g->name; });
      if (own != inlined.end()) {
        auto same = [&](const ops::GraphName* other) { return other->name == named->name; };
        if (std::ranges::count_if(all, same) > 1)
          cursor_.fail(
              node.where,
              "two graphs of this '{}' are called '{}'; give one that stands in it another "
              "name: graph NAME (…) {{…}} [V14]",
              node.op->name, printable(named->name));
        graphs.push_back(*own);
        continue;
      }
      SourceLocation where = node.where;
      for (const NamedLiteral& l : list)
        if (const auto* text = std::get_if<std::string>(&l.value.value);
            text && *text == named->name)
          where = l.where;
      graphs.push_back(file_.resolve(named->name, cursor_, where));
      if (graphs.back()->stages.size() != 1)
        cursor_.fail(where,
                     "graph '{}' has {} stages; only a graph with one stage can be called [V14]",
                     printable(named->name), graphs.back()->stages.size());
    }
    node.attributes = ops::with_graphs(node, graphs);
  }

  void finish(Node node, const WrittenResults& written) {
    if (std::string why = why_wrong_operands(*node.op, node.operands); !why.empty())
      cursor_.fail(node.where, "{}", why);
    if (node.op->data_sized) name_count(node);
    SmallVector<Type, 2> types;
    try {
      types = ops::infer(*graph_, node, nullptr, written.size());
    } catch (const Error& e) {
      cursor_.fail(node.where, "{} [V9]", e.bare());
    }
    if (types.size() != written.size())
      cursor_.fail(written[0].name.where, "'{}' gives {} result{} here, {} {} written [V9]",
                   node.op->name, types.size(), types.size() == 1 ? "" : "s", written.size(),
                   written.size() == 1 ? "is" : "are");
    for (size_t i = 0; i < types.size(); ++i) {
      if (written[i].type) check_written(written[i], types[i]);
      node.results.push_back(define(written[i].name, std::move(types[i])));
    }
    graph_->stages.back().nodes.push_back(std::move(node));
  }

  void check_written(const WrittenResult& written, const Type& type) const {
    Type expected = written.type->type;
    for (size_t i : written.type->any)
      if (i < type.dims.size()) expected.dims[i] = type.dims[i];
    if (expected == type || (!expected.is_tensor() && !type.is_tensor())) return;
    cursor_.fail(written.type_where,
                 "stage {}: '%{}' is declared as {}, and its operator gives {}; declare that, or "
                 "leave the type out [V9]",
                 stage_number(), printable(written.name.text), to_string(expected),
                 to_string(type));
  }

  void results() {
    std::unordered_set<std::string> names;
    std::vector<Result>& list = graph_->stages.back().results;
    while (!cursor_.accept(TokenKind::right_brace)) {
      if (!list.empty() && !cursor_.accept(TokenKind::comma))
        cursor_.fail_expected("',' or '}' after a result");
      SourceLocation start = cursor_.where();
      list.push_back(result());
      if (!names.insert(list.back().name).second)
        cursor_.fail(
            start,
            "stage {}: two results have the name '{}'; give the second another one: name = "
            "%value [V10]",
            stage_number(), printable(list.back().name));
    }
  }

  Result result() {
    Result r;
    bool named = !cursor_.at(TokenKind::value) &&
                 (!cursor_.at("none") || cursor_.peek_second().kind == TokenKind::equals);
    if (cursor_.at("none"))
      cursor_.fail(cursor_.where(), "{}",
                   named ? "a result called none is quoted: \"none\" = %value"
                         : "a result that is `none` needs a name: name = none [V10]");
    if (named) {
      r.name = cursor_.name("a result (%name, or name = %name)");
      cursor_.expect(TokenKind::equals, "after the result's name");
    }
    if (named && cursor_.accept("none")) return r;
    Token token = cursor_.expect(TokenKind::value, named ? "or 'none' as the result" : "");
    r.value = use(token);
    if (!(*graph_)[r.value].type.is_tensor())
      cursor_.fail(token.where,
                   "stage {}: '%{}' is a handle and cannot be returned; only `eval` "
                   "takes it [V8]",
                   stage_number(), printable(token.text));
    if (!named) r.name = token.content();
    return r;
  }

  Cursor cursor_;
  GraphFile& file_;
  std::shared_ptr<Graph> graph_;
  NameIndex names_;
  DimensionNames dimensions_;  // that inputs settle so far
  uint64_t next_fresh_ = 0;
};

}  // namespace

ParsedGraph parse_graph(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file) {
  return GraphParser(std::move(source), cursor, file).run();
}

ParsedGraph parse_inline_graph(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file,
                               std::string_view attribute) {
  return GraphParser(std::move(source), cursor, file).run_inline(attribute);
}

}  // namespace gradus::ir
