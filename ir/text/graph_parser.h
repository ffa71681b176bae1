// Reads one graph of a file.
#pragma once

#include <memory>
#include <string>

#include "gradus/graph.h"
#include "ir/text/cursor.h"
#include "ir/text/data_sized.h"

namespace gradus::ir {

struct ParsedGraph {
  std::shared_ptr<const Graph> graph;
  Cursor behind;
};

// What a graph asks of the file that it stands in.
class GraphFile {
 public:
  virtual ~GraphFile() = default;
  // The graph that a call at `where` names, wherever in the file it stands.
  virtual std::shared_ptr<const Graph> resolve(const std::string& name, const Cursor& caller,
                                               SourceLocation where) = 0;
  // The one that stands in an attribute of a node, where the cursor is.
  virtual ParsedGraph inline_graph(const std::string& attribute, const Cursor& cursor) = 0;
  // Whether the file has a name like s0 in it.
  virtual bool mentions(const std::string& name) = 0;

  DataSizedNodes data_sized;  // of the graphs read so far
};

// From the word `graph`, where the cursor stands, to the graph's last brace. Throws Error, with the
// place, for what is no graph or not a right one; types are checked as they are read.
ParsedGraph parse_graph(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file);
// The same for `graph [name] (inputs) { nodes return }`; without a name it has the attribute's.
ParsedGraph parse_inline_graph(std::shared_ptr<const Source> source, Cursor cursor, GraphFile& file,
                               std::string_view attribute);

}  // namespace gradus::ir
