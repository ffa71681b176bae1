// Memory in and out without copies: the buffer protocol (NumPy, memoryview, array) and DLPack.
#pragma once

#include "python/convert.h"

namespace gradus::python {

bool has_buffer(nb::handle object);
// Views the memory of an object with the buffer protocol, which is kept as long as the tensor is.
// Read-only memory is taken: Gradus writes to nothing that it is given. Throws Error for formats,
// byte orders and strides that tensors do not have.
Tensor tensor_from_buffer(nb::handle object);
// The same for an object with __dlpack__, or a capsule.
Tensor tensor_from_dlpack(nb::handle object);
// A capsule; versioned where the consumer knows that (`max_version`), and read-only then: what a
// consumer wrote would change values behind programs that hold them.
nb::object tensor_to_dlpack(const Tensor& tensor, bool versioned);

// The slots that give Tensor the buffer protocol: read-only, without a copy.
extern PyType_Slot tensor_buffer_slots[];

}  // namespace gradus::python
