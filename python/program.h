// What Python knows as a program.
#pragma once

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include "gradus/files.h"
#include "gradus/graph.h"
#include "gradus/state.h"
#include "python/gil.h"

namespace gradus::python {

// Shared and immutable, as graphs are; an ONNX model's weights go with it.
struct Program {
  std::shared_ptr<const ir::Module> module;
  NamedTensors weights;
  const ir::Graph& graph() const { return module->program(); }
};

// Throws Error for a size of no dimension.
void require_dimensions(const ir::Graph& graph, const DimSizes& sizes);

inline Program program_of(ir::Graph graph, NamedTensors weights = {}) {
  auto module = std::make_shared<ir::Module>();
  module->graphs.push_back(std::make_shared<const ir::Graph>(std::move(graph)));
  return {std::move(module), std::move(weights)};
}

// Program.view and what it gives, and how a notebook shows a program.
void add_views(nb::module_& m, nb::class_<Program>& program);

}  // namespace gradus::python
