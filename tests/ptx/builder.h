// A function while it is parsed: names, registers, labels.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/ptx/code.h"
#include "tests/ptx/syntax.h"

namespace gradus::ptx {

// Names of a module, as far as it is parsed.
struct ModuleNames {
  std::unordered_map<std::string_view, uint32_t> variables, functions;
};

class FunctionBuilder {
 public:
  FunctionBuilder(Function& function, Code& code, const ModuleNames& names);

  void open_scope();
  void close_scope(uint32_t line);

  // Registers name0 to name(count - 1), or `name` itself for a count of 0.
  void declare_registers(std::string_view name, Type, uint32_t count, uint32_t line);
  // A param or local variable of the function; its number.
  uint32_t declare_variable(std::string_view name, Variable, uint32_t line);
  // A module variable that is declared in the function.
  void declare_module_variable(std::string_view name, uint32_t number, uint32_t line);
  void label(std::string_view name, uint32_t line);
  void table(std::string_view name, std::vector<std::string_view> labels, uint32_t line);
  void append(Instruction in) { function_.code.push_back(in); }

  struct VariableRef {
    const Variable* variable;
    uint32_t number;
    bool own;
  };
  // Null registers and references where there is no such name.
  Reg find_register(std::string_view name);
  VariableRef find_variable(std::string_view name) const;

  Reg constant(unsigned width, uint64_t value);
  Reg special(Special, unsigned width);
  Reg address(const VariableRef&, int64_t addend, unsigned width);
  Reg sink(unsigned width);  // written, never read

  // The instruction that comes next branches to the label; its immediate becomes the place.
  void target(std::string_view label, uint32_t line);
  uint32_t find_table(std::string_view name, uint32_t line) const;

  // Calls of the instruction to come; the function may be declared later.
  uint32_t call(std::string_view function, std::vector<uint32_t> arguments,
                std::vector<uint32_t> results, uint32_t line);

  void note_approximate(uint32_t line);

  // Given that the body is complete: labels get their places.
  void finish(uint32_t line);

  const Function& function() const { return function_; }
  Code& code() { return code_; }

 private:
  struct Symbol {
    enum Kind : uint8_t { one, family, own, module } kind;
    Type type = Type::b32;
    uint32_t count = 0;   // of a family
    uint32_t number = 0;  // of a variable
    uint32_t scope = 0;
  };
  struct Scope {
    uint32_t parent;
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, uint32_t> labels;
    std::map<std::string, Reg, std::less<>> registers;
    std::unordered_map<std::string_view, uint32_t> tables;
  };
  struct Fixup {
    std::string_view label;
    uint32_t scope, line;
    uint32_t instruction, table, entry;  // table: ~0 for an instruction
  };

  Reg make(unsigned width);
  void declare(std::string_view name, Symbol, uint32_t line);

  Function& function_;
  Code& code_;
  const ModuleNames& names_;
  std::vector<Scope> scopes_;
  uint32_t scope_ = 0;
  std::vector<Fixup> fixups_;
  std::map<std::pair<unsigned, uint64_t>, Reg> constants_;
  std::map<std::pair<Special, unsigned>, Reg> specials_;
};

}  // namespace gradus::ptx
