#include "tests/ptx/decoder.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/error.h"

namespace gradus::ptx {

void Decoder::fail(const std::string& what) const {
  std::string opcode;
  for (auto p : s_.parts) opcode += fmt::format("{}{}", opcode.empty() ? "" : ".", p);
  throw Error("ptx:{}: {}: {}", s_.line, opcode, what);
}

std::optional<std::string_view> Decoder::peek() const {
  if (part_ == s_.parts.size()) return std::nullopt;
  return s_.parts[part_];
}

bool Decoder::take(std::string_view modifier) {
  if (peek() != modifier) return false;
  ++part_;
  return true;
}

std::optional<size_t> Decoder::try_of(std::initializer_list<std::string_view> list) {
  const auto next = peek();
  if (!next) return std::nullopt;
  const auto* it = std::find(list.begin(), list.end(), *next);
  if (it == list.end()) return std::nullopt;
  ++part_;
  return static_cast<size_t>(it - list.begin());
}

size_t Decoder::take_of(std::initializer_list<std::string_view> list) {
  if (const auto i = try_of(list)) return *i;
  std::string names;
  for (auto n : list) names += fmt::format("{}.{}", names.empty() ? "" : ", ", n);
  fail(fmt::format("expected one of {}{}", names, peek() ? fmt::format(", not .{}", *peek()) : ""));
}

std::optional<Type> Decoder::try_type() {
  const auto next = peek();
  if (!next) return std::nullopt;
  const auto t = find_type(*next);
  if (t) ++part_;
  return t;
}

Type Decoder::take_type() {
  if (const auto t = try_type()) return *t;
  fail(peek() ? fmt::format("the interpreter knows no .{} here", *peek()) : "lacks its type");
}

Type Decoder::take_type(std::initializer_list<Type> list) {
  const Type t = take_type();
  if (std::find(list.begin(), list.end(), t) == list.end())
    fail(fmt::format("is not for .{}", name_of(t)));
  return t;
}

void Decoder::push(Reg r) {
  if (registers_ == out.r.size()) fail("has too many operands");
  out.r[registers_++] = r;
}

const Operand& Decoder::operand() const {
  if (!has_operand()) fail("has too few operands");
  return s_.operands[operand_];
}

const Operand& Decoder::next_operand() {
  const Operand& o = operand();
  ++operand_;
  return o;
}

std::optional<Reg> Decoder::special(const Operand& o, unsigned width) {
  static const std::unordered_map<std::string_view, Special> dims[3] = {
      {{"%tid", Special::tid_x},
       {"%ntid", Special::ntid_x},
       {"%ctaid", Special::ctaid_x},
       {"%nctaid", Special::nctaid_x}},
      {{"%tid", Special::tid_y},
       {"%ntid", Special::ntid_y},
       {"%ctaid", Special::ctaid_y},
       {"%nctaid", Special::nctaid_y}},
      {{"%tid", Special::tid_z},
       {"%ntid", Special::ntid_z},
       {"%ctaid", Special::ctaid_z},
       {"%nctaid", Special::nctaid_z}}};
  static const std::unordered_map<std::string_view, Special> singles = {
      {"%laneid", Special::laneid},
      {"%warpid", Special::warpid},
      {"%nwarpid", Special::nwarpid},
      {"%smid", Special::smid},
      {"%nsmid", Special::nsmid},
      {"%gridid", Special::gridid},
      {"%lanemask_eq", Special::lanemask_eq},
      {"%lanemask_le", Special::lanemask_le},
      {"%lanemask_lt", Special::lanemask_lt},
      {"%lanemask_ge", Special::lanemask_ge},
      {"%lanemask_gt", Special::lanemask_gt},
      {"%dynamic_smem_size", Special::dynamic_smem_size},
      {"%total_smem_size", Special::total_smem_size}};
  if (!o.component.empty()) {
    const size_t d = std::string_view("xyz").find(o.component);
    if (o.component.size() != 1 || d == std::string_view::npos) return std::nullopt;
    const auto it = dims[d].find(o.text);
    if (it == dims[d].end()) return std::nullopt;
    return f_.special(it->second, width);
  }
  const auto it = singles.find(o.text);
  if (it != singles.end()) return f_.special(it->second, width);
  if (o.text == "WARP_SZ") return f_.constant(width, warp_size);
  return std::nullopt;
}

namespace {

// A number's bits as a value of type t.
uint64_t bits_of(const Number& n, Type t) {
  if (n.kind == Number::integer || t == Type::pred) return n.bits;
  if (n.kind == Number::single) {
    if (t == Type::f64)
      return std::bit_cast<uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(n.bits))));
    return n.bits;
  }
  const double d = std::bit_cast<double>(n.bits);
  if (t == Type::f32) return std::bit_cast<uint32_t>(static_cast<float>(d));
  return n.bits;
}

}  // namespace

Reg Decoder::read(const Operand& o, Type t, bool wider) {
  const unsigned width = width_of(t);
  if (o.negated && t != Type::pred) fail("negates what is no predicate");
  if (o.kind == Operand::number) return f_.constant(width, bits_of(o.value, t));
  if (o.kind != Operand::name) fail("an operand has a form that is not for its place");
  if (const auto r = special(o, width)) return *r;
  if (!o.component.empty()) fail(fmt::format("knows no {}.{}", o.text, o.component));
  if (const Reg r = f_.find_register(o.text)) {
    if (o.offset) fail("adds to a register outside of an address");
    if (r.width != width && !(wider && r.width > width && width > 0))
      fail(fmt::format("{} has {} bits, and .{} is expected", o.text, r.width * 8, name_of(t)));
    return r;
  }
  if (const auto v = f_.find_variable(o.text); v.variable) {
    if (width != 8 && width != 4) fail(fmt::format("{} is an address", o.text));
    return f_.address(v, o.offset, width);
  }
  fail(fmt::format("there is no {}", o.text));
}

Reg Decoder::write(const Operand& o, Type t, bool wider) {
  const unsigned width = width_of(t);
  if (o.kind != Operand::name || o.offset || o.negated || !o.component.empty())
    fail("its result is no register");
  if (o.text == "_") return f_.sink(width);
  const Reg r = f_.find_register(o.text);
  if (!r) fail(fmt::format("there is no register {}", o.text));
  if (r.width != width && !(wider && r.width > width && width > 0))
    fail(fmt::format("{} has {} bits, and .{} is expected", o.text, r.width * 8, name_of(t)));
  return r;
}

void Decoder::dest(Type t) { push(write(next_operand(), t, false)); }
void Decoder::source(Type t) { push(read(next_operand(), t, false)); }
void Decoder::wide_dest(Type t) { push(write(next_operand(), t, true)); }
void Decoder::wide_source(Type t) { push(read(next_operand(), t, true)); }
void Decoder::dest_predicate() { dest(Type::pred); }

void Decoder::source_predicate() {
  negated = operand().negated;
  source(Type::pred);
}

void Decoder::dest_pair(Type first, Type second) {
  const Operand& o = next_operand();
  if (o.kind != Operand::pair) {
    push(write(o, first, false));
    push({});
    return;
  }
  push(write(o.items[0], first, false));
  push(write(o.items[1], second, false));
}

void Decoder::address(Space space) {
  const Operand& o = next_operand();
  if (o.kind != Operand::memory) fail("expects an address in brackets");
  out.immediate = o.offset;
  if (o.text.empty()) {
    push(f_.constant(8, 0));
    return;
  }
  if (const Reg r = f_.find_register(o.text)) {
    if (r.width != 8 && r.width != 4) fail(fmt::format("{} is too narrow for an address", o.text));
    push(r);
    return;
  }
  const auto v = f_.find_variable(o.text);
  if (!v.variable) fail(fmt::format("there is no {}", o.text));
  const Space there = v.variable->space == Space::entry_param ? Space::param : v.variable->space;
  if (there != space && space != Space::generic)
    fail(fmt::format("{} is .{} memory", o.text, name_of(there)));
  if (space == Space::generic && there != Space::global && there != Space::constant)
    fail(fmt::format("{} has no generic address that could stand here", o.text));
  push(f_.address(v, 0, 8));
}

namespace {

const std::vector<Operand>& elements(const Decoder& d, const Operand& o, unsigned n) {
  if (o.kind != Operand::vector || o.items.size() != n)
    d.fail(fmt::format("expects {} registers in braces", n));
  return o.items;
}

}  // namespace

void Decoder::wide_dests(Type t, unsigned n) {
  if (n == 1) return wide_dest(t);
  for (const Operand& o : elements(*this, next_operand(), n)) push(write(o, t, true));
}

void Decoder::wide_sources(Type t, unsigned n) {
  if (n == 1) return wide_source(t);
  for (const Operand& o : elements(*this, next_operand(), n)) push(read(o, t, true));
}

void Decoder::finish() const {
  if (part_ < s_.parts.size())
    fail(fmt::format("the interpreter knows no .{} here", s_.parts[part_]));
  if (operand_ < s_.operands.size()) fail("has too many operands");
}

const Opcodes& opcodes() {
  static const Opcodes all = [] {
    Opcodes o;
    add_integer_opcodes(o);
    add_bit_opcodes(o);
    add_float_opcodes(o);
    add_compare_opcodes(o);
    add_convert_opcodes(o);
    add_move_opcodes(o);
    add_memory_opcodes(o);
    add_atomic_opcodes(o);
    add_control_opcodes(o);
    add_collective_opcodes(o);
    return o;
  }();
  return all;
}

}  // namespace gradus::ptx
