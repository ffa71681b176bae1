// Archives of torch.export: PyTorch programs, read without PyTorch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "gradus/import.h"

#pragma GCC visibility push(default)

namespace gradus::pt2 {

// The program of an archive that torch.export.save wrote (torch 2.9 and later; the training form,
// without run_decompositions), as a program of one stage. `import_program` reads files.
//
// Inputs are the tensors that the module's forward takes, by their names and in their order; then
// its parameters, buffers and constants as far as the program reads them, by their names in
// the state_dict (tied parameters are one input, under the first name). `weights` has their values.
// Results are those of the forward, under the names of their nodes; then what the call writes: a
// buffer's or an input's new value, under its name. Named sizes keep the archive's names ("s77").
//
// Throws Error, which names node, operator and line of the model's source where the archive has it,
// for an archive that is damaged, of another version, or holds what has no meaning here. The bytes
// are borrowed for the call; tensors own copies. Nothing pickled is read. Takes memory in
// proportion to the bytes. Thread-safe.
ImportedProgram import_bytes(std::span<const std::byte> bytes, const std::string& name);

// What the module's load_state_dict(strict=True) takes: each parameter and persistent buffer of an
// archive by its name in the state_dict, also those that the program does not read. Tied parameters
// stand under all of their names. `values` (trained weights, a call's new buffers) replace those of
// their names and of names tied to them. Throws Error for a value of a name that is not there, or
// of another dtype or shape.
NamedTensors state_dict(const std::string& path, const NamedTensors& values = {});

}  // namespace gradus::pt2

#pragma GCC visibility pop
