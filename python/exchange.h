// Memory in and out without copies: the buffer protocol (NumPy, memoryview, array) and DLPack.
#pragma once

#include "gradus/dlpack.h"
#include "python/convert.h"

namespace gradus::python {

bool has_buffer(nb::handle object);
// Views the memory of an object with the buffer protocol, which is kept as long as the tensor is.
// Read-only memory is taken: Gradus writes to nothing that it is given. Throws Error for formats,
// byte orders and strides that tensors do not have. `written`: it is memory for a result, and
// read-only memory is an Error.
Tensor tensor_from_buffer(nb::handle object, bool written = false);
// The same for an object with __dlpack__, or a capsule. Memory of a cuda device that somebody uses
// is taken as well: the object's stream is asked to have our current one wait.
Tensor tensor_from_dlpack(nb::handle object);
// The same for what a producer gave in C. On an exception nothing was taken.
Tensor tensor_from_managed(DLManagedTensorVersioned* managed);
// As __dlpack__ of the array API says. A capsule; versioned where the consumer knows that
// (`max_version`), and read-only then: what a consumer wrote would change values behind programs
// that hold them. On a device the consumer's `stream` waits for what ours has been given.
struct DlpackRequest {
  nb::object stream, max_version, device, copy;  // each may be None
};
nb::object tensor_to_dlpack(const Tensor& tensor, const DlpackRequest& request);
// (1, 0) on the cpu, (2, n) on cuda:n.
nb::tuple dlpack_device_of(const Tensor& tensor);

// The slots that give Tensor the buffer protocol: read-only, without a copy.
extern PyType_Slot tensor_buffer_slots[];

}  // namespace gradus::python
