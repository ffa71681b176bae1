// One graph of a program file.
#pragma once

#include <memory>
#include <string>

#include "ir/text/cursor.h"

namespace gradus::ir {

// The other graphs of the file, for `call`.
class GraphFinder {
 public:
  virtual ~GraphFinder() = default;
  // The graph of that name, read to its end, with one stage. Throws Error at `where` if there is
  // none, or if it is the one that is being read.
  virtual std::shared_ptr<const Graph> find(const std::string& name, SourceLocation where) = 0;
};

// Reads `{ stage … }`, the cursor at the '{'; infers all types and verifies the graph.
Graph parse_graph(Cursor& cursor, const std::string& name, std::shared_ptr<const Source> source,
                  GraphFinder& others);

}  // namespace gradus::ir
