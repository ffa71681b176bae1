// Which graphs have nodes the size of whose result data decides.
#pragma once

#include <memory>
#include <unordered_map>

#include "gradus/graph.h"

namespace gradus::ir {

// Looks at the nodes of each graph once, however many nodes call it, and keeps the graph.
class DataSizedNodes {
 public:
  // Of the stages of `graph`, the first such node; nullptr if there is none.
  const Node* first_in(const std::shared_ptr<const Graph>& graph);

 private:
  std::unordered_map<std::shared_ptr<const Graph>, const Node*> known_;
};

// The same as in gradus/text.h, for a caller that verifies many graphs.
void verify_but_types(const Graph& graph, DataSizedNodes& data_sized);

}  // namespace gradus::ir
