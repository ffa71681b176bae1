#include "python/exchange_table.h"

#include "gradus/device_streams.h"
#include "gradus/devices.h"
#include "gradus/dlpack.h"
#include "python/exchange.h"
#include "python/run.h"

namespace gradus::python {

namespace {

// As dlpack.h has them since version 1.2.
struct ExchangeHeader {
  DLPackVersion version;
  ExchangeHeader* previous;
};
struct ExchangeTable {
  ExchangeHeader header;
  int (*allocate)(DLTensor*, DLManagedTensorVersioned**, void*,
                  void (*)(void*, const char*, const char*));
  int (*from_object)(void* object, DLManagedTensorVersioned** out);
  int (*to_object)(DLManagedTensorVersioned* tensor, void** object);
  int (*borrow)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType type, int32_t device, void** stream);
};

const ExchangeTable& table_of(nb::handle type) {
  nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api"))
    throw Error("tensors of this type bring no functions to exchange them: a newer release does");
  auto* header =
      static_cast<ExchangeHeader*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (header && header->version.major != DLPACK_MAJOR_VERSION) header = header->previous;
  if (!header) throw Error("tensors of this type are exchanged by another version of DLPack");
  return *reinterpret_cast<ExchangeTable*>(header);
}

void check_status(int status) {
  if (status != 0) throw nb::python_error();
}

Tensor tensor_from(const ExchangeTable& table, nb::handle object) {
  DLManagedTensorVersioned* managed = nullptr;
  check_status(table.from_object(object.ptr(), &managed));
  try {
    return tensor_from_managed(managed);
  } catch (...) {
    if (managed->deleter) managed->deleter(managed);
    throw;
  }
}

nb::object object_from(const ExchangeTable& table, const Tensor& t) {
  void* object = nullptr;
  DLManagedTensorVersioned* managed = to_dlpack(t);
  if (table.to_object(managed, &object) != 0) {
    if (managed->deleter) managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(static_cast<PyObject*>(object));
}

// The streams that a library works on, of the devices that tensors lie on: ours wait for them, and
// they for ours at the end.
class CallerStreams {
 public:
  CallerStreams(const ExchangeTable& table, std::span<const Tensor> tensors) {
    for (const Tensor& t : tensors)
      if (t.defined() && t.device().kind == DeviceKind::cuda) add(table, t.device());
  }
  // What ours were given so far is done before what theirs are given from now on.
  void follow() const {
    for (const auto& [device, stream] : streams_) let_wait(device, stream);
  }

 private:
  void add(const ExchangeTable& table, Device device) {
    for (const auto& known : streams_)
      if (known.first == device) return;
    void* stream = nullptr;
    check_status(table.current_stream(kDLCUDA, device.index, &stream));
    streams_.emplace_back(device, reinterpret_cast<uintptr_t>(stream));
  }
  std::vector<std::pair<Device, uintptr_t>> streams_;
};

}  // namespace

nb::list run_exchanged(State& state, nb::handle tensors, nb::handle type) {
  const ExchangeTable& table = table_of(type);
  std::vector<Tensor> inputs;
  inputs.reserve(nb::len(tensors));
  for (nb::handle item : tensors)
    inputs.push_back(item.is_none() ? Tensor() : tensor_from(table, item));
  const CallerStreams streams(table, inputs);
  RunOptions options;
  options.results_on_device = true;
  std::vector<Tensor> results(state.finished() ? 0
                                               : state.code()->results(state.next_stage()).size());
  run_placed(state, [&] {
    state.run_into(inputs, results, options);
    // What the inputs or the state have is theirs as well. (A later stage's results are linear in
    // its own inputs, and so none of an earlier stage's.)
    for (Tensor& t : results)
      if (t.defined() && !t.sole_owner())
        t = t.device() == Device() ? t.copy() : autograd::clone(Variable(t)).data();
    streams.follow();
  });
  nb::list out;
  for (const Tensor& t : results) out.append(t.defined() ? object_from(table, t) : nb::none());
  return out;
}

}  // namespace gradus::python
