// Archives of torch.export: imports PyTorch programs without PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradus/import.h"

#pragma GCC visibility push(default)

namespace gradus::pt2 {

// What is done with a condition of sizes that a program cannot state: the archive is rejected, or
// the condition is left to a caller who checks all of the archive's guards before each run.
enum class OtherGuards : uint8_t { rejected, left };

// Returns the program of an archive that torch.export.save wrote, as a program of one stage.
// Requires torch 2.9 or later, and the training form, without run_decompositions. `import_program`
// reads files.
//
// The inputs are the tensors that the module's forward takes, with their names, in their order. The
// parameters, buffers and constants that the program reads follow, under their names in the
// state_dict; tied parameters are one input, under the first name. `weights` has their values. The
// results are those of forward, under the names of their nodes. The values that the call writes
// follow: the new value of a buffer or an input, under its name. Named sizes keep the names of the
// archive ("s77"). The conditions of sizes that the export found, its guards, are checked when the
// program runs.
//
// Throws Error for an archive that is damaged or of another version, or that contains an operator
// that Gradus does not support. The message names the node, the operator and, if the archive has
// it, the line of the model's source. `bytes` is borrowed for the call; tensors own copies. Pickled
// data is not read. The memory that it takes is proportional to the number of bytes. Thread-safe.
ImportedProgram import_bytes(std::span<const std::byte> bytes, const std::string& name,
                             OtherGuards other = OtherGuards::rejected);

// Returns the argument of the module's load_state_dict(strict=True): every parameter and persistent
// buffer of an archive by its name in the state_dict, including those that the program does not
// read. Tied parameters appear under all of their names. `values` (trained weights, new buffers of
// a call) replace the values of these names and of the names tied to them. Throws Error for an
// unknown name, and for a value of another dtype or shape.
NamedTensors state_dict(const std::string& path, const NamedTensors& values = {});

}  // namespace gradus::pt2

#pragma GCC visibility pop
