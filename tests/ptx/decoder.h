// From an instruction as it is written to one that runs: what a family of opcodes uses to read
// its modifiers and operands.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/ptx/builder.h"

namespace gradus::ptx {

class Decoder {
 public:
  Decoder(const Statement& s, FunctionBuilder& f) : s_(s), f_(f) {}

  Instruction out;

  // Modifiers, in the order in which they stand. `take` says whether the next one is this, and
  // if so goes on.
  bool take(std::string_view modifier);
  // Which of these is next, as its place in the list; none: an Error that names them.
  size_t take_of(std::initializer_list<std::string_view> list);
  std::optional<size_t> try_of(std::initializer_list<std::string_view> list);
  Type take_type();
  std::optional<Type> try_type();
  // A type that is one of these.
  Type take_type(std::initializer_list<Type> list);
  std::optional<std::string_view> peek() const;
  // The type at the end; most opcodes have theirs there.
  std::optional<Type> last_type() const { return find_type(s_.parts.back()); }

  // Operands, in the order in which they stand; each becomes the next of out.r.
  void dest(Type t);
  void source(Type t);
  // Of a register that may be wider than the type (ld, st, cvt). Numbers take the type's width.
  void wide_dest(Type t);
  void wide_source(Type t);
  void dest_predicate();
  void source_predicate();  // sets `negated` if it is one
  bool negated = false;
  // "d" or "d|p", where both are of their types; r of the second is null if it is not there.
  void dest_pair(Type first, Type second);
  // [register + offset] or [variable + offset]: the address register, and out.immediate.
  void address(Space space);
  // {a, b}: a register each.
  void wide_dests(Type t, unsigned n);
  void wide_sources(Type t, unsigned n);
  void nothing() { push({}); }
  void copy(Reg r) { push(r); }

  bool has_operand() const { return operand_ < s_.operands.size(); }
  const Operand& operand() const;
  const Operand& next_operand();
  Reg read(const Operand& o, Type t, bool wider);
  Reg write(const Operand& o, Type t, bool wider);
  Reg last() const { return out.r[registers_ - 1]; }

  // Given that all was read: an Error if something is left.
  void finish() const;

  [[noreturn]] void fail(const std::string& what) const;
  FunctionBuilder& builder() { return f_; }
  const Statement& statement() const { return s_; }

 private:
  void push(Reg r);
  std::optional<Reg> special(const Operand& o, unsigned width);

  const Statement& s_;
  FunctionBuilder& f_;
  size_t part_ = 1, operand_ = 0, registers_ = 0;
};

using Decode = void (*)(Decoder&);
using Opcodes = std::unordered_map<std::string_view, Decode>;

// The families.
void add_integer_opcodes(Opcodes&);
void add_bit_opcodes(Opcodes&);
void add_float_opcodes(Opcodes&);
void add_compare_opcodes(Opcodes&);
void add_convert_opcodes(Opcodes&);
void add_move_opcodes(Opcodes&);
void add_memory_opcodes(Opcodes&);
void add_atomic_opcodes(Opcodes&);
void add_control_opcodes(Opcodes&);
void add_collective_opcodes(Opcodes&);

void decode_warp_barrier(Decoder&);  // bar.warp, given that both are read

const Opcodes& opcodes();

}  // namespace gradus::ptx
