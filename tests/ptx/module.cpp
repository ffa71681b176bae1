#include "tests/ptx/module.h"

#include "gradus/error.h"
#include "tests/ptx/parser.h"

namespace gradus::ptx {

std::string_view name_of(Space s) {
  switch (s) {
    case Space::generic:
      return "generic";
    case Space::global:
      return "global";
    case Space::constant:
      return "const";
    case Space::shared:
      return "shared";
    case Space::local:
      return "local";
    case Space::param:
    case Space::entry_param:
      return "param";
  }
  return "";
}

std::string_view Code::line(uint32_t number) const {
  size_t at = 0;
  for (uint32_t n = 1; n < number; ++n) {
    at = text.find('\n', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  std::string_view s = std::string_view(text).substr(at);
  s = s.substr(0, s.find('\n'));
  const size_t begin = s.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view{} : s.substr(begin);
}

Module Module::parse(std::string_view ptx) {
  return Module(std::make_shared<const Code>(ptx::parse(ptx)));
}

std::vector<std::string> Module::kernels() const {
  std::vector<std::string> names;
  for (const Function& f : code_->functions)
    if (f.entry) names.push_back(f.name);
  return names;
}

const Function& Module::kernel(std::string_view name) const {
  for (const Function& f : code_->functions)
    if (f.entry && f.name == name && f.defined) return f;
  std::string names;
  for (const auto& k : kernels()) names += " " + k;
  throw Error("the module has no kernel {}; it has{}", name, names.empty() ? " none" : names);
}

std::vector<size_t> Module::parameter_sizes(std::string_view name) const {
  const Function& f = kernel(name);
  std::vector<size_t> sizes;
  for (uint32_t p : f.params) sizes.push_back(f.variables[p].bytes);
  return sizes;
}

}  // namespace gradus::ptx
