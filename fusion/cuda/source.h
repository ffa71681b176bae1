// A nest -> CUDA C++.
#pragma once

#include <span>
#include <string>

#include "fusion/nest.h"

namespace gradus::fusion::cuda {

// The kernel's name in its source.
inline constexpr const char* entry_name = "gradus_kernel";

// What a launch has to know of a kernel beside its nest.
struct KernelShape {
  bool by_rows = false;  // sixteen threads or more for each row; else a thread for `pack` elements
  int pack = 1;
};

struct Source {
  std::string text;  // a translation unit that includes nothing
  KernelShape shape;
};

// One kernel, entry_name, of the nest: the bits of its loops, if compiled by the options of
// fusion/cuda/compiler.h. `lines`, which may be empty, says for each step what it is in the
// program; comments repeat it. The nest is verified. Throws Error naming the form, where a nest is
// of one that CUDA kernels do not have.
Source write_source(const Nest& nest, std::span<const std::string> lines = {});

// A kernel's parameters: pointers to the first elements of loads, stores and row stores, then these
// fields of one struct, those of 32 bits before those of 64.
struct Field {
  enum Kind : uint8_t {
    size,    // of dimension `dim`
    rows,    // by rows: how many
    groups,  // by rows: sixteen threads that work on a row at a time; else packs in a row
    items,   // not by rows: rows times groups
    whole,   // not by rows: a bit for each load, then store, whose packs are aligned
    stride,  // of load `load` in dimension `dim`, in elements
  };
  Kind kind;
  size_t load = 0, dim = 0;
  bool wide() const { return kind == stride; }
};
std::vector<Field> fields_of(const Nest& nest, const KernelShape& shape);

}  // namespace gradus::fusion::cuda
