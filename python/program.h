// What Python knows as a program.
#pragma once

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include "gradus/files.h"
#include "gradus/graph.h"

namespace gradus::python {

// Shared and immutable, as graphs are; an ONNX model's weights go with it.
struct Program {
  std::shared_ptr<const ir::Module> module;
  NamedTensors weights;
  const ir::Graph& graph() const { return module->program(); }
};

inline Program program_of(ir::Graph graph, NamedTensors weights = {}) {
  auto module = std::make_shared<ir::Module>();
  module->graphs.push_back(std::make_shared<const ir::Graph>(std::move(graph)));
  return {std::move(module), std::move(weights)};
}

}  // namespace gradus::python
