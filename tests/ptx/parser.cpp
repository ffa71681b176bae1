#include "tests/ptx/parser.h"

#include "gradus/error.h"
#include "tests/ptx/body.h"

namespace gradus::ptx {

// In control.cpp: what stands behind a body's last instruction.
Instruction end_of_body(uint32_t line);

namespace {

class Parser {
 public:
  explicit Parser(Code& code) : code_(code), in_(tokenize(code.text)) {}

  void parse() {
    while (!in_.at_end()) {
      const Token& t = in_.peek();
      if (t.kind != TokenKind::directive) in_.fail("expected a directive of a module");
      if (in_.take_directive("version") || in_.take_directive("target")) {
        in_.skip_line(t.line);
      } else if (in_.take_directive("address_size")) {
        if (in_.expect_integer(64) != 64) in_.fail("addresses have 64 bits");
      } else if (in_.take_directive("file")) {
        file(t.line);
      } else if (in_.take_directive("section")) {
        in_.next();
        in_.skip_braces();
      } else if (in_.take_directive("pragma")) {
        in_.skip_statement();
      } else {
        definition();
      }
    }
  }

 private:
  void file(uint32_t line) {
    const auto number = static_cast<uint32_t>(in_.expect_integer(~uint32_t{0}));
    code_.files[number] = in_.expect(TokenKind::text, "a file's name").text;
    in_.skip_line(line);
  }

  void definition() {
    bool external = false;
    for (;;) {
      if (in_.take_directive("extern"))
        external = true;
      else if (!in_.take_directive("visible") && !in_.take_directive("weak") &&
               !in_.take_directive("common"))
        break;
    }
    if (in_.take_directive("entry")) return function(true);
    if (in_.take_directive("func")) return function(false);
    if (in_.take_directive("global")) return variable(Space::global, external);
    if (in_.take_directive("const")) return variable(Space::constant, external);
    if (in_.take_directive("shared")) return variable(Space::shared, external);
    in_.fail("the interpreter knows no such definition");
  }

  void variable(Space space, bool external) {
    const uint32_t line = in_.line();
    do {
      Declaration d = parse_variable(in_, space, names_);
      if (space != Space::shared) d.variable.dynamic = false;
      if (external && space != Space::shared)
        throw Error("ptx:{}: {} is defined elsewhere, and nothing links modules", line, d.name);
      const auto number = static_cast<uint32_t>(code_.variables.size());
      code_.variables.push_back(std::move(d.variable));
      if (!names_.variables.emplace(d.name, number).second)
        throw Error("ptx:{}: {} is declared twice", line, d.name);
    } while (in_.take(','));
    in_.expect(';');
  }

  // The parameters or results in parentheses.
  std::vector<Declaration> formals(bool entry) {
    std::vector<Declaration> list;
    in_.expect('(');
    if (in_.take(')')) return list;
    do {
      if (!in_.take_directive("param")) in_.fail("expected .param");
      list.push_back(parse_variable(in_, entry ? Space::entry_param : Space::param, names_));
    } while (in_.take(','));
    in_.expect(')');
    return list;
  }

  void function(bool entry) {
    std::vector<Declaration> results, params;
    if (!entry && in_.peek().is('(')) results = formals(false);
    const Token name = in_.expect(TokenKind::word, "a function's name");
    if (in_.peek().is('(')) params = formals(entry);

    Function fresh;
    fresh.name = name.text;
    fresh.entry = entry;
    FunctionBuilder builder(fresh, code_, names_);
    for (auto& p : results)
      fresh.results.push_back(builder.declare_variable(p.name, std::move(p.variable), name.line));
    for (auto& p : params)
      fresh.params.push_back(builder.declare_variable(p.name, std::move(p.variable), name.line));
    directives(fresh);

    const uint32_t number = declare(name, fresh);
    if (in_.take(';')) return;
    if (code_.functions[number].defined)
      throw Error("ptx:{}: {} is defined twice", name.line, name.text);
    parse_body(in_, builder, names_);
    const uint32_t line = in_.line();
    fresh.code.push_back(end_of_body(line));
    builder.finish(line);
    fresh.defined = true;
    code_.functions[number] = std::move(fresh);
  }

  // The number of a function with this name; calls may come before its body.
  uint32_t declare(const Token& name, const Function& fresh) {
    const auto [it, is_new] =
        names_.functions.emplace(name.text, static_cast<uint32_t>(code_.functions.size()));
    if (is_new) {
      code_.functions.push_back(fresh);
      return it->second;
    }
    const auto sizes = [](const Function& f) {
      std::vector<uint64_t> s{f.entry, f.results.size()};
      for (uint32_t v : f.results) s.push_back(f.variables[v].bytes);
      for (uint32_t v : f.params) s.push_back(f.variables[v].bytes);
      return s;
    };
    if (sizes(fresh) != sizes(code_.functions[it->second]))
      throw Error("ptx:{}: {} was declared otherwise", name.line, name.text);
    return it->second;
  }

  void directives(Function& f) {
    while (in_.peek().kind == TokenKind::directive) {
      const Token t = in_.next();
      if (t.text == "maxntid" || t.text == "reqntid") {
        std::array<uint32_t, 3> n{1, 1, 1};
        size_t i = 0;
        do n[i] = static_cast<uint32_t>(in_.expect_integer(1024));
        while (++i < 3 && in_.take(','));
        if (t.text == "reqntid")
          f.required_threads = n;
        else
          f.max_threads = n[0] * n[1] * n[2];
      } else if (t.text == "minnctapersm" || t.text == "maxnreg") {
        in_.expect_integer(~uint32_t{0});
      } else if (t.text == "pragma") {
        in_.skip_statement();
      } else if (t.text != "noreturn" && t.text != "noinline") {
        throw Error("ptx:{}: the interpreter knows no .{} of a function", t.line, t.text);
      }
    }
  }

  Code& code_;
  ModuleNames names_;
  TokenStream in_;
};

}  // namespace

Code parse(std::string_view ptx) {
  Code code;
  code.text = ptx;
  Parser(code).parse();
  return code;
}

}  // namespace gradus::ptx
