// Reads one graph of a file.
#pragma once

#include <memory>
#include <string>

#include "gradus/graph.h"
#include "ir/text/cursor.h"

namespace gradus::ir {

// What a graph asks of the file that it stands in.
class GraphFile {
 public:
  virtual ~GraphFile() = default;
  // The graph that a call at `where` names, wherever in the file it stands.
  virtual std::shared_ptr<const Graph> resolve(const std::string& name, const Cursor& caller,
                                               SourceLocation where) = 0;
  // Whether the file has a name like s0 in it.
  virtual bool mentions(const std::string& name) = 0;
};

struct ParsedGraph {
  std::shared_ptr<const Graph> graph;
  Cursor behind;
};

// From the word `graph`, where the cursor stands, to the graph's last brace. Throws Error, with the
// place, for what is no graph or not a right one; types are checked as they are read.
ParsedGraph parse_graph(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file);

}  // namespace gradus::ir
