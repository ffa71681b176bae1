// The nodes of a model as a text, a line each: what messages, profiles and drawings point to.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gradus/graph.h"

namespace gradus {

// Makes of a module (ir::Source::modules) the one within it that is called so. A name grows to a
// line's length, no further: a function's nodes are many for few bytes of a file.
inline void enter_module(std::string& module, std::string_view part) {
  constexpr size_t longest = 300;
  if (part.empty() || module.size() + part.size() > longest) return;
  if (!module.empty()) module += '/';
  module += part;
}

// PyTorch names a module by its whole path: "norm" of "layers.0.norm" within "layers.0".
inline std::string_view name_within(std::string_view outer, std::string_view name) {
  const bool within =
      !outer.empty() && name.starts_with(outer) && name.substr(outer.size()).starts_with('.');
  return within ? name.substr(outer.size() + 1) : name;
}

class NodeLines {
 public:
  explicit NodeLines(std::string file) { source_->file = std::move(file); }
  // For the model's graphs. It grows while the model is imported.
  std::shared_ptr<const ir::Source> source() const { return source_; }
  // Where the line stands, which is added unless the text has it. `module`: as in Source::modules.
  SourceLocation add(const std::string& line, std::string module) {
    auto [it, fresh] = lines_.try_emplace(line, static_cast<uint32_t>(lines_.size()) + 1);
    if (fresh) {
      source_->text += line + '\n';
      source_->modules.push_back(std::move(module));
    }
    return {it->second, 1};
  }

 private:
  std::shared_ptr<ir::Source> source_ = std::make_shared<ir::Source>();
  std::unordered_map<std::string, uint32_t> lines_;
};

}  // namespace gradus
