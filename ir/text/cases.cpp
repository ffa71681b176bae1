#include "ir/text/cases.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "gradus/messages.h"

namespace gradus::ir {

namespace {

class CaseParser {
 public:
  CaseParser(Cursor& cursor, const Module& module) : cursor_(cursor), module_(module) {}

  Case run() {
    case_.where = cursor_.where();
    case_.graph = module_.main;
    cursor_.expect("case");
    case_.name = cursor_.name("the case's name");
    cursor_.expect(TokenKind::left_brace, "after the case's name");
    if (cursor_.accept("graph")) choose_graph();
    collect_names();
    while (!cursor_.accept(TokenKind::right_brace)) statement();
    check_names();
    return std::move(case_);
  }

 private:
  const Graph& graph() const { return *module_.graphs[case_.graph]; }

  void choose_graph() {
    SourceLocation start = cursor_.where();
    std::string name = cursor_.name("a graph's name");
    auto it = std::find_if(module_.graphs.begin(), module_.graphs.end(),
                           [&](const auto& g) { return g->name == name; });
    if (it == module_.graphs.end()) cursor_.fail(start, "there is no graph '{}'", printable(name));
    case_.graph = static_cast<size_t>(it - module_.graphs.begin());
  }

  void collect_names() {
    for (const Stage& stage : graph().stages)
      for (ValueId v : stage.inputs) input_names_.emplace(graph()[v].name, v);
    for (size_t s = 0; s < graph().stages.size(); ++s)
      for (const Result& r : graph().stages[s].results) result_stages_[r.name].push_back(s);
  }

  void statement() {
    Token first = cursor_.peek();
    if (cursor_.accept("set")) return set();
    if (cursor_.accept("input")) return input();
    if (cursor_.accept("expect")) return expectation();
    if (cursor_.accept("differentiate")) return differentiate(first);
    if (cursor_.accept("gradcheck")) return gradcheck(first);
    if (!cursor_.accept("error"))
      cursor_.fail_expected(
          "set, input, expect, differentiate, gradcheck, error or '}' in the case");
    once(case_.error.has_value(), first);
    case_.error = cursor_.expect(TokenKind::string, "that the error contains").content();
  }

  void once(bool already, const Token& first) {
    if (already) cursor_.fail(first.where, "'{}' stands twice in the case", first.text);
  }

  void set() {
    SourceLocation start = cursor_.where();
    std::string name = cursor_.expect(TokenKind::name, "of a dimension").content();
    cursor_.expect(TokenKind::equals);
    auto size = static_cast<int64_t>(cursor_.count(INT64_MAX, "a size"));
    if (!sized_.insert(name).second)
      cursor_.fail(start, "the size '{}' is set twice", printable(name));
    case_.sizes.emplace_back(std::move(name), size);
  }

  void input() {
    CaseInput in;
    in.where = cursor_.where();
    in.name = cursor_.name("an input's name");
    cursor_.expect(TokenKind::equals, "after the input's name");
    if (!given_.insert(in.name).second)
      cursor_.fail(in.where, "the input '{}' is given twice", printable(in.name));
    if (cursor_.accept("random")) {
      in.value = random();
    } else if (cursor_.accept("undefined")) {
      in.value = Tensor();
    } else {
      if (!cursor_.at(TokenKind::name) || !dtype_from_name(cursor_.peek().text))
        cursor_.fail_expected("a tensor such as f32[2] [1, 2], random(-1, 1) or undefined");
      in.value = read_tensor(cursor_);
    }
    case_.inputs.push_back(std::move(in));
  }

  RandomInput random() {
    RandomInput r;
    SourceLocation start = cursor_.where();
    cursor_.expect(TokenKind::left_parenthesis, "after 'random'");
    r.low = read_real(cursor_, "the lower bound");
    cursor_.expect(TokenKind::comma, "and the upper bound");
    r.high = read_real(cursor_, "the upper bound");
    if (cursor_.accept(TokenKind::comma)) r.seed = cursor_.count(UINT64_MAX, "a seed");
    cursor_.expect(TokenKind::right_parenthesis);
    if (!(r.low <= r.high && r.high - r.low <= 1e300))
      cursor_.fail(start, "random bounds are finite numbers, the lower one first");
    return r;
  }

  void expectation() {
    CaseExpectation e;
    e.where = cursor_.where();
    if (cursor_.at("stage") && cursor_.peek_second().kind == TokenKind::integer) {
      cursor_.take();
      e.stage = cursor_.count(UINT32_MAX, "a stage's number");
    }
    e.name = cursor_.name("a result's name");
    cursor_.expect(TokenKind::equals, "after the result's name");
    if (cursor_.accept("undefined")) {
      e.kind = CaseExpectation::Kind::undefined;
    } else if (cursor_.accept("none")) {
      e.kind = CaseExpectation::Kind::none;
    } else {
      if (!cursor_.at(TokenKind::name) || !dtype_from_name(cursor_.peek().text))
        cursor_.fail_expected("a tensor such as f32[2] [1, 2], none or undefined");
      e.value = read_tensor(cursor_);
      e.tolerance = default_tolerance(e.value.dtype());
      if (cursor_.accept("tolerance")) e.tolerance = tolerance();
    }
    if (!expected_.emplace(e.name, e.stage).second)
      cursor_.fail(e.where, "the result '{}' is expected twice", printable(e.name));
    case_.expectations.push_back(std::move(e));
  }

  double tolerance() {
    SourceLocation start = cursor_.where();
    double t = read_real(cursor_, "a tolerance");
    if (!(t >= 0 && t < 1e300)) cursor_.fail(start, "a tolerance is a number, 0 or more");
    return t;
  }

  int order() {
    cursor_.expect("order", "and a number");
    return static_cast<int>(cursor_.count(1000, "an order"));
  }

  std::vector<std::string> wrt() {
    std::vector<std::string> names;
    do {
      SourceLocation start = cursor_.where();
      names.push_back(cursor_.name("an input's name"));
      auto it = input_names_.find(names.back());
      if (it == input_names_.end() || graph()[it->second].stage != 0)
        cursor_.fail(start, "stage 0 has no input '{}'", printable(names.back()));
    } while (cursor_.accept(TokenKind::comma));
    return names;
  }

  void differentiate(const Token& first) {
    once(case_.differentiate.has_value(), first);
    CaseDifferentiation d;
    d.order = order();
    for (;;) {
      if (cursor_.accept("wrt"))
        d.wrt = wrt();
      else if (cursor_.accept("total"))
        d.total = true;
      else
        break;
    }
    case_.differentiate = std::move(d);
  }

  void gradcheck(const Token& first) {
    once(case_.gradcheck.has_value(), first);
    CaseGradcheck g;
    g.order = order();
    for (;;) {
      if (cursor_.accept("wrt"))
        g.wrt = wrt();
      else if (cursor_.accept("seed"))
        g.seed = cursor_.count(UINT64_MAX, "a seed");
      else if (cursor_.accept("tolerance"))
        g.tolerance = tolerance();
      else
        break;
    }
    case_.gradcheck = std::move(g);
  }

  // Names that the program does not have: derivative stages bring names of their own, which only
  // the runner can know.
  void check_names() const {
    if (case_.differentiate || case_.gradcheck) return;
    for (const CaseInput& in : case_.inputs)
      if (!input_names_.contains(in.name))
        cursor_.fail(in.where, "the program has no input '{}'; {}", printable(in.name),
                     inputs_there());
    for (const CaseExpectation& e : case_.expectations) {
      auto it = result_stages_.find(e.name);
      size_t found = it == result_stages_.end() ? 0 : it->second.size();
      if (found && e.stage)
        found = std::binary_search(it->second.begin(), it->second.end(), *e.stage);
      if (found == 0)
        cursor_.fail(e.where, "the program has no result '{}'{}", printable(e.name),
                     e.stage ? " in that stage" : "");
      if (found > 1)
        cursor_.fail(e.where, "several stages have a result '{}'; write expect stage N {} = …",
                     printable(e.name), printable(e.name));
    }
  }

  // "its inputs are: x, w"
  std::string inputs_there() const {
    std::vector<std::string> names;
    for (const Stage& stage : graph().stages)
      for (ValueId v : stage.inputs) names.push_back(printable(graph()[v].name));
    if (names.empty()) return "it takes none";
    return fmt::format("its inputs are: {}", fmt::join(names, ", "));
  }

  Cursor& cursor_;
  const Module& module_;
  Case case_;
  std::unordered_map<std::string_view, ValueId> input_names_;
  std::unordered_map<std::string_view, std::vector<size_t>> result_stages_;
  std::unordered_set<std::string> given_, sized_;
  std::set<std::pair<std::string, std::optional<uint64_t>>> expected_;
};

}  // namespace

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 1e-3;
    case DType::bf16:
      return 1e-2;
    default:
      return 0;
  }
}

std::vector<Case> parse_cases(Cursor& cursor, const Module& module) {
  std::vector<Case> cases;
  std::unordered_set<std::string> names;
  cursor.restrict_dimensions(nullptr);
  while (!cursor.at(TokenKind::end)) {
    if (!cursor.at("case")) cursor.fail_expected("'case' or the end of the text");
    cases.push_back(CaseParser(cursor, module).run());
    if (!names.insert(cases.back().name).second)
      cursor.fail(cases.back().where, "there is a case '{}' already", printable(cases.back().name));
  }
  return cases;
}

}  // namespace gradus::ir
