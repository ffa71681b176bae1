#include "tests/ptx/builder.h"

#include <algorithm>
#include <charconv>

#include "gradus/error.h"
#include "tests/ptx/block.h"

namespace gradus::ptx {

namespace {

constexpr uint32_t no_table = ~uint32_t{0};
constexpr uint32_t max_registers = 1u << 20;

uint64_t round_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

FunctionBuilder::FunctionBuilder(Function& function, Code& code, const ModuleNames& names)
    : function_(function), code_(code), names_(names) {
  scopes_.push_back({0, {}, {}, {}, {}});
}

void FunctionBuilder::open_scope() {
  scopes_.push_back({scope_, {}, {}, {}, {}});
  scope_ = static_cast<uint32_t>(scopes_.size() - 1);
}

void FunctionBuilder::close_scope(uint32_t line) {
  if (scope_ == 0) throw Error("ptx:{}: a brace closes what none opened", line);
  scope_ = scopes_[scope_].parent;
}

void FunctionBuilder::declare(std::string_view name, Symbol s, uint32_t line) {
  s.scope = scope_;
  if (!scopes_[scope_].symbols.emplace(name, s).second)
    throw Error("ptx:{}: {} is declared twice", line, name);
}

void FunctionBuilder::declare_registers(std::string_view name, Type type, uint32_t count,
                                        uint32_t line) {
  if (count > max_registers) throw Error("ptx:{}: {} registers are too many", line, count);
  declare(name, {count ? Symbol::family : Symbol::one, type, count}, line);
}

uint32_t FunctionBuilder::declare_variable(std::string_view name, Variable v, uint32_t line) {
  uint64_t& bytes = v.space == Space::local         ? function_.local_bytes
                    : v.space == Space::entry_param ? function_.argument_bytes
                                                    : function_.param_bytes;
  v.offset = round_up(bytes, v.align);
  bytes = v.offset + v.bytes;
  if (bytes > max_local)
    throw Error("ptx:{}: more than {} bytes of {} memory", line, max_local, name_of(v.space));
  const auto number = static_cast<uint32_t>(function_.variables.size());
  function_.variables.push_back(std::move(v));
  if (name != "_") declare(name, {Symbol::own, Type::b32, 0, number}, line);
  return number;
}

void FunctionBuilder::declare_module_variable(std::string_view name, uint32_t number,
                                              uint32_t line) {
  declare(name, {Symbol::module, Type::b32, 0, number}, line);
}

void FunctionBuilder::label(std::string_view name, uint32_t line) {
  const auto here = static_cast<uint32_t>(function_.code.size());
  if (!scopes_[scope_].labels.emplace(name, here).second)
    throw Error("ptx:{}: label {} stands twice", line, name);
}

void FunctionBuilder::table(std::string_view name, std::vector<std::string_view> labels,
                            uint32_t line) {
  const auto number = static_cast<uint32_t>(function_.tables.size());
  function_.tables.emplace_back(labels.size());
  if (!scopes_[scope_].tables.emplace(name, number).second)
    throw Error("ptx:{}: {} is declared twice", line, name);
  for (uint32_t i = 0; i < labels.size(); ++i)
    fixups_.push_back({labels[i], scope_, line, 0, number, i});
}

Reg FunctionBuilder::make(unsigned width) {
  Reg r;
  r.width = static_cast<uint8_t>(width);
  r.index = function_.registers++;
  r.offset = function_.register_bytes;
  function_.register_bytes += std::max(32u, width * warp_size);
  return r;
}

Reg FunctionBuilder::find_register(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  for (uint32_t s = scope_;; s = scopes_[s].parent) {
    Scope& scope = scopes_[s];
    if (const auto it = scope.registers.find(name); it != scope.registers.end()) return it->second;
    const Symbol* found = nullptr;
    if (const auto it = scope.symbols.find(name); it != scope.symbols.end()) {
      if (it->second.kind != Symbol::one) return {};
      found = &it->second;
    } else if (digits < name.size() && digits > 0 &&
               (name[digits] != '0' || digits + 1 == name.size())) {
      const auto family = scope.symbols.find(name.substr(0, digits));
      uint32_t n = 0;
      const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), n);
      if (family != scope.symbols.end() && family->second.kind == Symbol::family &&
          error == std::errc() && n < family->second.count)
        found = &family->second;
    }
    if (found) {
      const Reg r = make(width_of(found->type));
      scope.registers.emplace(std::string(name), r);
      return r;
    }
    if (s == 0) return {};
  }
}

FunctionBuilder::VariableRef FunctionBuilder::find_variable(std::string_view name) const {
  for (uint32_t s = scope_;; s = scopes_[s].parent) {
    if (const auto it = scopes_[s].symbols.find(name); it != scopes_[s].symbols.end()) {
      const Symbol& symbol = it->second;
      if (symbol.kind == Symbol::own)
        return {&function_.variables[symbol.number], symbol.number, true};
      if (symbol.kind == Symbol::module)
        return {&code_.variables[symbol.number], symbol.number, false};
      return {};
    }
    if (s == 0) break;
  }
  const auto it = names_.variables.find(name);
  if (it == names_.variables.end()) return {};
  return {&code_.variables[it->second], it->second, false};
}

Reg FunctionBuilder::constant(unsigned width, uint64_t value) {
  if (width > 0 && width < 8) value &= (uint64_t{1} << 8 * width) - 1;
  const auto [it, fresh] = constants_.try_emplace({width, value});
  if (fresh) {
    it->second = make(width);
    function_.fills.push_back({it->second, Special::value, value});
  }
  return it->second;
}

Reg FunctionBuilder::special(Special what, unsigned width) {
  const auto [it, fresh] = specials_.try_emplace({what, width});
  if (fresh) {
    it->second = make(width);
    function_.fills.push_back({it->second, what});
  }
  return it->second;
}

Reg FunctionBuilder::address(const VariableRef& ref, int64_t addend, unsigned width) {
  const Reg r = make(width);
  function_.fills.push_back(
      {r, Special::variable, static_cast<uint64_t>(addend), ref.number, ref.own});
  auto& shared = function_.shared;
  if (!ref.own && ref.variable->space == Space::shared &&
      std::find(shared.begin(), shared.end(), ref.number) == shared.end())
    shared.push_back(ref.number);
  return r;
}

Reg FunctionBuilder::sink(unsigned width) { return make(width); }

void FunctionBuilder::target(std::string_view label, uint32_t line) {
  fixups_.push_back(
      {label, scope_, line, static_cast<uint32_t>(function_.code.size()), no_table, 0});
}

uint32_t FunctionBuilder::find_table(std::string_view name, uint32_t line) const {
  for (uint32_t s = scope_;; s = scopes_[s].parent) {
    const auto it = scopes_[s].tables.find(name);
    if (it != scopes_[s].tables.end()) return it->second;
    if (s == 0) throw Error("ptx:{}: no .branchtargets {} stands before", line, name);
  }
}

uint32_t FunctionBuilder::call(std::string_view function, std::vector<uint32_t> arguments,
                               std::vector<uint32_t> results, uint32_t line) {
  const auto it = names_.functions.find(function);
  if (it == names_.functions.end())
    throw Error("ptx:{}: {} is no function that was declared", line, function);
  const Function& callee = code_.functions[it->second];
  const auto check = [&](const std::vector<uint32_t>& given, const std::vector<uint32_t>& formal,
                         const char* what) {
    if (given.size() != formal.size())
      throw Error("ptx:{}: {} has {} {}, and {} are given", line, function, formal.size(), what,
                  given.size());
    for (size_t i = 0; i < given.size(); ++i)
      if (function_.variables[given[i]].bytes != callee.variables[formal[i]].bytes)
        throw Error("ptx:{}: number {} of {}'s {} has {} bytes, and {} are given", line, i,
                    function, what, callee.variables[formal[i]].bytes,
                    function_.variables[given[i]].bytes);
  };
  check(arguments, callee.params, "parameters");
  check(results, callee.results, "results");
  function_.calls.push_back({it->second, std::move(arguments), std::move(results)});
  return static_cast<uint32_t>(function_.calls.size() - 1);
}

void FunctionBuilder::note_approximate(uint32_t line) {
  if (!function_.approximate) function_.approximate = line;
}

void FunctionBuilder::finish(uint32_t line) {
  if (scope_ != 0) throw Error("ptx:{}: a brace of {} is not closed", line, function_.name);
  for (const Fixup& f : fixups_) {
    uint32_t s = f.scope;
    auto it = scopes_[s].labels.find(f.label);
    while (it == scopes_[s].labels.end() && s != 0) {
      s = scopes_[s].parent;
      it = scopes_[s].labels.find(f.label);
    }
    if (it == scopes_[s].labels.end())
      throw Error("ptx:{}: there is no label {} in {}", f.line, f.label, function_.name);
    if (f.table == no_table)
      function_.code[f.instruction].immediate = it->second;
    else
      function_.tables[f.table][f.entry] = it->second;
  }
}

}  // namespace gradus::ptx
