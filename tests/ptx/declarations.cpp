#include "tests/ptx/declarations.h"

#include <bit>

#include "gradus/error.h"

namespace gradus::ptx {

namespace {

constexpr uint64_t max_bytes = uint64_t{1} << 30;

class Initializer {
 public:
  Initializer(TokenStream& in, Variable& v, Type t, const ModuleNames& names)
      : in_(in), v_(v), type_(t), names_(names) {}

  void parse() {
    value(0);
    if (v_.initial.size() > v_.bytes) in_.fail("has more initial values than elements");
  }

 private:
  void value(int depth) {
    if (!in_.take('{')) return element();
    if (depth > 8) in_.fail("initial values are nested too deep");
    if (in_.take('}')) return;
    do value(depth + 1);
    while (in_.take(','));
    in_.expect('}');
  }

  void element() {
    if (in_.peek().kind == TokenKind::word) return pointer();
    const bool minus = in_.take('-');
    const Token& t = in_.expect(TokenKind::number, "an initial value");
    const Number n = parse_number(t);
    uint64_t bits = n.bits;
    if (n.kind == Number::binary64 && type_ == Type::f32)
      bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    if (n.kind == Number::single && type_ == Type::f64)
      bits = std::bit_cast<uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    if (minus) bits = n.kind == Number::integer ? -bits : flipped(bits);
    append(bits);
  }

  uint64_t flipped(uint64_t bits) const {
    return bits ^ (uint64_t{1} << (width_of(type_) * 8 - 1));
  }

  // name, generic(name), with an offset.
  void pointer() {
    bool generic = false;
    if (in_.peek().text == "generic" && in_.peek(1).is('(')) {
      in_.next();
      in_.next();
      generic = true;
    }
    const Token& name = in_.expect(TokenKind::word, "a name");
    const auto it = names_.variables.find(name.text);
    if (it == names_.variables.end())
      throw Error("ptx:{}: there is no variable {} before", name.line, name.text);
    if (generic) in_.expect(')');
    int64_t addend = 0;
    if (in_.take('+')) addend = static_cast<int64_t>(in_.expect_integer(max_bytes));
    if (width_of(type_) != 8)
      throw Error("ptx:{}: an address has 64 bits, not .{}", name.line, name_of(type_));
    v_.pointers.push_back({v_.initial.size(), it->second, addend});
    append(0);
  }

  void append(uint64_t bits) {
    if (v_.initial.size() > max_bytes) in_.fail("has too many initial values");
    for (unsigned i = 0; i < width_of(type_); ++i)
      v_.initial.push_back(static_cast<std::byte>(bits >> 8 * i));
  }

  TokenStream& in_;
  Variable& v_;
  Type type_;
  const ModuleNames& names_;
};

// .ptr and what it says of the memory that a parameter points to.
void skip_pointer_attributes(TokenStream& in) {
  while (in.peek().kind == TokenKind::directive) {
    if (in.take_directive("align"))
      in.expect_integer(max_bytes);
    else
      in.next();
  }
}

}  // namespace

Declaration parse_variable(TokenStream& in, Space space, const ModuleNames& names) {
  Declaration d;
  d.variable.space = space;
  std::optional<Type> type;
  uint64_t align = 0, elements = 1;
  while (in.peek().kind == TokenKind::directive) {
    if (in.take_directive("align")) {
      align = in.expect_integer(1 << 20);
    } else if (in.take_directive("attribute")) {
      in.expect('(');
      while (!in.at_end() && !in.take(')')) in.next();
    } else if (in.take_directive("ptr")) {
      skip_pointer_attributes(in);
    } else if (in.take_directive("v2")) {
      elements = 2;
    } else if (in.take_directive("v4")) {
      elements = 4;
    } else if (const auto t = find_type(in.peek().text); t && width_of(*t)) {
      type = t;
      in.next();
    } else {
      in.fail("expected a type that memory may have");
    }
  }
  if (!type) in.fail("expected a type");
  d.name = in.expect(TokenKind::word, "a name").text;
  d.variable.name = d.name;
  const uint64_t element = width_of(*type) * elements;
  uint64_t bytes = element;
  while (in.take('[')) {
    if (in.take(']')) {  // as long as its initial value, or the launch, says
      bytes = 0;
      d.variable.dynamic = true;
      continue;
    }
    const uint64_t n = in.expect_integer(max_bytes);
    in.expect(']');
    bytes *= n;
    if (bytes > max_bytes) in.fail(fmt::format("{} is too large", d.name));
  }
  d.variable.bytes = bytes;
  d.variable.align = align ? align : element;
  if (d.variable.align & (d.variable.align - 1)) in.fail("an alignment is a power of two");
  if (in.take('=')) {
    if (space != Space::global && space != Space::constant)
      in.fail(fmt::format("{} variables have no initial value", name_of(space)));
    if (d.variable.dynamic) d.variable.bytes = max_bytes;
    Initializer(in, d.variable, *type, names).parse();
    if (d.variable.dynamic) d.variable.bytes = d.variable.initial.size();
    d.variable.dynamic = false;
  }
  return d;
}

}  // namespace gradus::ptx
