#include "tests/ptx/body.h"

#include "gradus/error.h"
#include "tests/ptx/decoder.h"

namespace gradus::ptx {

namespace {

class Body {
 public:
  Body(TokenStream& in, FunctionBuilder& f, const ModuleNames& names)
      : in_(in), f_(f), names_(names) {}

  void parse() {
    in_.expect('{');
    for (int depth = 1; depth > 0;) {
      const Token& t = in_.peek();
      if (in_.take('{')) {
        f_.open_scope();
        ++depth;
      } else if (in_.take('}')) {
        if (--depth > 0) f_.close_scope(t.line);
      } else if (t.kind == TokenKind::directive) {
        directive();
      } else if (t.kind == TokenKind::word && in_.peek(1).is(':')) {
        label();
      } else if (t.kind == TokenKind::word || t.is('@')) {
        instruction();
      } else if (!in_.take(';')) {
        in_.fail("expected an instruction");
      }
    }
  }

 private:
  void directive() {
    const Token& t = in_.next();
    if (t.text == "reg") {
      registers();
    } else if (t.text == "param") {
      variable(Space::param);
    } else if (t.text == "local") {
      variable(Space::local);
    } else if (t.text == "shared") {
      module_variable(Space::shared);
    } else if (t.text == "global") {
      module_variable(Space::global);
    } else if (t.text == "const") {
      module_variable(Space::constant);
    } else if (t.text == "loc") {
      place(t.line);
    } else if (t.text == "pragma") {
      in_.skip_statement();
    } else {
      throw Error("ptx:{}: the interpreter knows no .{} in a function", t.line, t.text);
    }
  }

  void registers() {
    const Token& t = in_.expect(TokenKind::directive, "a type");
    const auto type = find_type(t.text);
    if (!type) throw Error("ptx:{}: the interpreter knows no registers of .{}", t.line, t.text);
    do {
      const Token& name = in_.expect(TokenKind::word, "a register");
      uint32_t count = 0;
      if (in_.take('<')) {
        count = static_cast<uint32_t>(in_.expect_integer(~uint32_t{0}));
        in_.expect('>');
        if (count == 0) continue;
      }
      f_.declare_registers(name.text, *type, count, name.line);
    } while (in_.take(','));
    in_.expect(';');
  }

  void variable(Space space) {
    const uint32_t line = in_.line();
    Declaration d = parse_variable(in_, space, names_);
    in_.expect(';');
    f_.declare_variable(d.name, std::move(d.variable), line);
  }

  void module_variable(Space space) {
    const uint32_t line = in_.line();
    Declaration d = parse_variable(in_, space, names_);
    in_.expect(';');
    auto& all = f_.code().variables;
    all.push_back(std::move(d.variable));
    f_.declare_module_variable(d.name, static_cast<uint32_t>(all.size() - 1), line);
  }

  // .loc file line column, and where it was inlined.
  void place(uint32_t line) {
    Place p;
    p.file = static_cast<uint32_t>(in_.expect_integer(~uint32_t{0}));
    p.line = static_cast<uint32_t>(in_.expect_integer(~uint32_t{0}));
    p.column = static_cast<uint32_t>(in_.expect_integer(~uint32_t{0}));
    in_.skip_line(line);
    f_.code().places.push_back(p);
    place_ = static_cast<uint32_t>(f_.code().places.size() - 1);
  }

  void label() {
    const Token name = in_.next();
    in_.expect(':');
    if (in_.take_directive("branchtargets")) {
      std::vector<std::string_view> labels;
      do labels.push_back(in_.expect(TokenKind::word, "a label").text);
      while (in_.take(','));
      in_.expect(';');
      f_.table(name.text, std::move(labels), name.line);
      return;
    }
    f_.label(name.text, name.line);
  }

  void instruction() {
    Statement s;
    if (in_.take('@')) {
      s.unless = in_.take('!');
      s.guard = in_.expect(TokenKind::word, "a predicate").text;
    }
    const Token& opcode = in_.expect(TokenKind::word, "an opcode");
    s.line = opcode.line;
    s.parts.push_back(opcode.text);
    while (in_.peek().kind == TokenKind::directive) s.parts.push_back(in_.next().text);
    const auto known = opcodes().find(s.parts[0]);
    if (known == opcodes().end()) {
      std::string whole;
      for (auto p : s.parts) whole += fmt::format("{}{}", whole.empty() ? "" : ".", p);
      throw Error("ptx:{}: the interpreter knows no instruction {}", s.line, whole);
    }
    if (!in_.peek().is(';')) {
      do s.operands.push_back(operand(0));
      while (in_.take(','));
    }
    in_.expect(';');
    decode(s, known->second);
  }

  void decode(const Statement& s, Decode opcode) {
    Decoder d(s, f_);
    d.out.line = s.line;
    d.out.place = place_;
    if (!s.guard.empty()) {
      d.out.guard = f_.find_register(s.guard);
      d.out.unless = s.unless;
      if (!d.out.guard || d.out.guard.width != 0)
        throw Error("ptx:{}: {} is no predicate", s.line, s.guard);
    }
    opcode(d);
    d.finish();
    f_.append(d.out);
  }

  Operand operand(int depth) {
    if (depth > 8) in_.fail("operands are nested too deep");
    Operand o = single(depth);
    if (!in_.take('|')) return o;
    Operand pair;
    pair.kind = Operand::pair;
    pair.items = {std::move(o), single(depth)};
    return pair;
  }

  Operand single(int depth) {
    Operand o;
    if (in_.take('{')) return items(Operand::vector, '}', depth);
    if (in_.take('(')) return items(Operand::list, ')', depth);
    if (in_.take('[')) {
      o.kind = Operand::memory;
      if (in_.peek().kind == TokenKind::word) o.text = in_.next().text;
      o.offset = offsets();
      in_.expect(']');
      return o;
    }
    o.negated = in_.take('!');
    if (in_.peek().is('-') || in_.peek().is('~') || in_.peek().kind == TokenKind::number)
      return number();
    o.text = in_.expect(TokenKind::word, "an operand").text;
    if (in_.peek().kind == TokenKind::directive) o.component = in_.next().text;
    o.offset = offsets();
    return o;
  }

  // What stands between brackets or parentheses.
  Operand items(Operand::Kind kind, char close, int depth) {
    Operand o;
    o.kind = kind;
    if (in_.take(close)) return o;
    do o.items.push_back(operand(depth + 1));
    while (in_.take(','));
    in_.expect(close);
    return o;
  }

  Operand number() {
    Operand o;
    o.kind = Operand::number;
    const bool minus = in_.take('-'), invert = !minus && in_.take('~');
    o.value = parse_number(in_.expect(TokenKind::number, "a number"));
    if (invert) o.value.bits = ~o.value.bits;
    if (minus) {
      if (o.value.kind == Number::integer)
        o.value.bits = -o.value.bits;
      else
        o.value.bits ^= uint64_t{1} << (o.value.kind == Number::single ? 31 : 63);
    }
    return o;
  }

  // +1, -1, +-1, or nothing; the first may stand without a sign.
  int64_t offsets() {
    uint64_t sum = 0;
    for (bool first = true;; first = false) {
      bool minus = false, sign = false;
      while (in_.peek().is('+') || in_.peek().is('-')) {
        minus ^= in_.next().is('-');
        sign = true;
      }
      if (in_.peek().kind != TokenKind::number || (!sign && !first))
        return static_cast<int64_t>(sum);
      const Number n = parse_number(in_.next());
      if (n.kind != Number::integer) in_.fail("an offset is an integer");
      sum += minus ? -n.bits : n.bits;
    }
  }

  TokenStream& in_;
  FunctionBuilder& f_;
  const ModuleNames& names_;
  uint32_t place_ = 0;
};

}  // namespace

void parse_body(TokenStream& in, FunctionBuilder& f, const ModuleNames& names) {
  Body(in, f, names).parse();
}

}  // namespace gradus::ptx
