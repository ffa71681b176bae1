// The nodes of a model as a text, a line each: what messages, profiles and drawings point to.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "gradus/graph.h"

namespace gradus {

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
