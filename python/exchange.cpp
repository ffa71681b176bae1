#include "python/exchange.h"

#include <bit>

#include "gradus/apply.h"
#include "gradus/device_streams.h"
#include "gradus/devices.h"
#include "gradus/dlpack.h"
#include "python/errors.h"

namespace gradus::python {

namespace {

static_assert(std::endian::native == std::endian::little);

DLDataType dlpack_type(char format, Py_ssize_t size) {
  constexpr std::pair<std::string_view, DLDataTypeCode> kinds[] = {
      {"?", kDLBool}, {"bhilqn", kDLInt}, {"BHILQN", kDLUInt}, {"efd", kDLFloat}};
  for (auto [formats, code] : kinds)
    if (formats.find(format) != formats.npos)
      return {static_cast<uint8_t>(code), static_cast<uint8_t>(size * 8), 1};
  return {kDLOpaqueHandle, 0, 1};
}

// A buffer that is viewed, as a struct of DLPack: what has to hold is checked where that is read.
struct Borrowed {
  DLManagedTensorVersioned managed{};
  Py_buffer buffer{};
  std::vector<int64_t> shape, strides;
};

void release_borrowed(DLManagedTensorVersioned* managed) {
  auto* b = static_cast<Borrowed*>(managed->manager_ctx);
  with_lock_or_never([b] {
    PyBuffer_Release(&b->buffer);
    delete b;
  });
}

// Of another's struct, whose deleter wants the interpreter's lock or does not mind it.
template <class Managed>
struct Foreign {
  DLManagedTensorVersioned managed{};
  Managed* theirs = nullptr;
};

// Nobody could read what lies there.
void check_used(Device device) {
  if (device != Device() && !is_used(device))
    throw Error(
        "the array lies on {0}, which this process does not use; call gradus.use_device("
        "\"{0}\") first, or give it on the cpu",
        to_string(device));
}

bool is_on_cuda(int type) { return type == kDLCUDA || type == kDLCUDAManaged; }

template <class Managed>
Tensor adopt(Managed* theirs) {
  if (const DLDevice d = theirs->dl_tensor.device; is_on_cuda(d.device_type))
    check_used({DeviceKind::cuda, static_cast<uint16_t>(d.device_id)});
  auto foreign = std::make_unique<Foreign<Managed>>();
  foreign->theirs = theirs;
  foreign->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  foreign->managed.manager_ctx = foreign.get();
  foreign->managed.dl_tensor = theirs->dl_tensor;
  foreign->managed.deleter = [](DLManagedTensorVersioned* self) {
    auto* f = static_cast<Foreign<Managed>*>(self->manager_ctx);
    with_lock_or_never([f] {
      if (f->theirs->deleter) f->theirs->deleter(f->theirs);
      delete f;
    });
  };
  Tensor t = from_dlpack(&foreign->managed);
  static_cast<void>(foreign.release());
  return t;
}

}  // namespace

bool has_buffer(nb::handle object) { return PyObject_CheckBuffer(object.ptr()) != 0; }

Tensor tensor_from_buffer(nb::handle object, bool written) {
  auto b = std::make_unique<Borrowed>();
  if (PyObject_GetBuffer(object.ptr(), &b->buffer, written ? PyBUF_RECORDS : PyBUF_RECORDS_RO) !=
      0) {
    nb::python_error why;
    // NumPy's is a ValueError.
    const bool refused = why.matches(PyExc_BufferError) || why.matches(PyExc_ValueError);
    if (!written || !refused) throw why;
    throw Error("the array is read-only, and a result is to be written to it");
  }
  struct Release {  // until the tensor does it
    Py_buffer* buffer;
    ~Release() {
      if (buffer) PyBuffer_Release(buffer);
    }
  } release{&b->buffer};
  const Py_buffer& view = b->buffer;
  std::string_view format = view.format ? view.format : "B";
  if (format.size() == 2 && (format[0] == '@' || format[0] == '=' || format[0] == '<'))
    format.remove_prefix(1);
  DLDataType type = format.size() == 1 ? dlpack_type(format[0], view.itemsize)
                                       : DLDataType{kDLOpaqueHandle, 0, 1};
  if (type.code == kDLOpaqueHandle)
    throw Error(
        "an array of format '{}' is no tensor; those of float64, float32, float16, bool and "
        "integers of 8 to 64 bits in this machine's byte order are: convert it with astype",
        format);
  for (int d = 0; d < view.ndim; ++d) {
    if (view.strides[d] % view.itemsize != 0)
      throw Error("an array whose strides are no multiples of its elements is no tensor; copy it");
    b->shape.push_back(view.shape[d]);
    b->strides.push_back(view.strides[d] / view.itemsize);
  }
  b->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  b->managed.manager_ctx = b.get();
  b->managed.deleter = release_borrowed;
  b->managed.dl_tensor = {view.buf,        {kDLCPU, 0},       view.ndim, type,
                          b->shape.data(), b->strides.data(), 0};
  Tensor t = from_dlpack(&b->managed);
  release.buffer = nullptr;
  static_cast<void>(b.release());
  return t;
}

namespace {

// The stream that an object's producer is told of; none where it lies on the cpu.
nb::dict stream_for(nb::handle object) {
  nb::dict arguments;
  if (!nb::hasattr(object, "__dlpack_device__")) return arguments;
  nb::object place = object.attr("__dlpack_device__")();
  const int type = nb::cast<int>(nb::int_(place[0])), number = nb::cast<int>(nb::int_(place[1]));
  if (!is_on_cuda(type)) return arguments;
  const Device device{DeviceKind::cuda, static_cast<uint16_t>(number)};
  check_used(device);
  arguments["stream"] = native_stream(device);
  return arguments;
}

nb::object capsule_of(nb::handle object) {
  IntoPython scope;
  nb::object method = object.attr("__dlpack__");
  nb::dict arguments = stream_for(object);
  arguments["max_version"] = nb::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  try {
    return method(**arguments);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
  }
  arguments.attr("pop")("max_version");  // it knows version 0 alone
  return method(**arguments);
}

}  // namespace

Tensor tensor_from_dlpack(nb::handle object) {
  nb::object capsule = PyCapsule_CheckExact(object.ptr()) ? nb::borrow(object) : capsule_of(object);
  // What is taken is renamed, so that the capsule does not let it go as well.
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    Tensor t = adopt(static_cast<DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned")));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return t;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    Tensor t =
        adopt(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor")));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    return t;
  }
  throw Error("the object's __dlpack__ gave no capsule of a tensor, or one that was taken already");
}

Tensor tensor_from_managed(DLManagedTensorVersioned* managed) { return adopt(managed); }

nb::tuple dlpack_device_of(const Tensor& tensor) {
  const Device d = tensor.device();
  return nb::make_tuple(static_cast<int>(d == Device() ? kDLCPU : kDLCUDA),
                        static_cast<int>(d.index));
}

namespace {

// What the consumer asks of `stream`, done.
void serve_stream(const Tensor& t, nb::handle stream) {
  if (t.device() == Device()) {
    if (!stream.is_none())
      throw Error("__dlpack__ of a tensor on the cpu takes no stream, but None");
    return;
  }
  constexpr int64_t nothing = -1, legacy_default = 1;
  const int64_t native = stream.is_none() ? legacy_default : nb::cast<int64_t>(stream);
  if (native == nothing) return;
  if (native < legacy_default)
    throw Error(
        "__dlpack__ takes as stream 1 (the legacy default one), 2 (the thread's default one), a "
        "stream's address, -1 (nobody waits) or None (as 1); {} is none of them",
        native);
  let_wait(t.device(), static_cast<uintptr_t>(native));
}

// Where the consumer wants it, copied if that is elsewhere or asked for.
Tensor placed(const Tensor& t, const DlpackRequest& request) {
  const bool says = !request.copy.is_none(), copies = says && nb::cast<bool>(request.copy);
  const nb::tuple here = dlpack_device_of(t);
  if (request.device.is_none() || request.device.equal(here)) {
    if (!copies) return t;
    if (t.device() == Device()) return unlocked([&] { return t.copy(); });
    return unlocked([&] { return autograd::clone(Variable(t)).data(); });
  }
  const nb::tuple cpu = nb::make_tuple(static_cast<int>(kDLCPU), 0);
  if (!request.device.equal(cpu))
    throw nb::buffer_error(
        fmt::format("a tensor on {} is handed out there, or as a copy on the cpu (1, 0)",
                    to_string(t.device()))
            .c_str());
  if (says && !copies)
    throw nb::buffer_error("a tensor on a device is seen on the cpu by a copy alone");
  return unlocked([&] { return autograd::move_to(Variable(t), Device()).data(); });
}

template <class Managed>
nb::object capsule_of(Managed* managed, const char* name) {
  return nb::steal(PyCapsule_New(managed, name, [](PyObject* self) {
    constexpr const char* kept =
        std::is_same_v<Managed, DLManagedTensor> ? "dltensor" : "dltensor_versioned";
    if (!PyCapsule_IsValid(self, kept)) return;
    auto* m = static_cast<Managed*>(PyCapsule_GetPointer(self, kept));
    m->deleter(m);
  }));
}

}  // namespace

nb::object tensor_to_dlpack(const Tensor& tensor, const DlpackRequest& request) {
  const Tensor t = placed(tensor, request);
  serve_stream(t, request.stream);
  const nb::object& version = request.max_version;
  if (!version.is_none() && nb::cast<int>(version[0]) >= 1)
    return capsule_of(to_dlpack(t, /*read_only=*/true), "dltensor_versioned");
  return capsule_of(to_dlpack_unversioned(t), "dltensor");
}

namespace {

// What a buffer that was given away needs.
struct Lent {
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
  char format[2] = {0, 0};
};

char format_of(DType d) {
  constexpr char formats[dtype_count] = {'d', 'f', 'e', 0,   'q', 'i', 'b',
                                         'B', '?', 'h', 'H', 'I', 'Q'};
  return formats[static_cast<int>(d)];
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  view->obj = nullptr;
  try {
    const Variable& v = *nb::inst_ptr<Variable>(self);
    check_readable(v);
    auto lent = std::make_unique<Lent>();
    lent->tensor = v.data();
    const Tensor& t = lent->tensor;
    if (t.device() != Device())
      throw Error("the tensor lies on {}; give to_device(\"cpu\")", to_string(t.device()));
    lent->format[0] = format_of(t.dtype());
    if (!lent->format[0]) throw Error("NumPy has no bf16: cast the tensor to f32 first");
    if (flags & PyBUF_WRITABLE) throw Error("a tensor is read-only for others; copy it to write");
    const auto size = static_cast<Py_ssize_t>(size_of(t.dtype()));
    for (int64_t n : t.shape()) lent->shape.push_back(n);
    for (int64_t n : t.strides()) lent->strides.push_back(n * size);
    const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if (!strided && !t.layout().contiguous())
      throw Error("the tensor is not contiguous; ask for strides, or copy it");
    view->buf = const_cast<std::byte*>(t.data());
    view->len = t.numel() * size;
    view->itemsize = size;
    view->readonly = 1;
    view->ndim = t.rank();
    view->format = (flags & PyBUF_FORMAT) ? lent->format : nullptr;
    view->shape = (flags & PyBUF_ND) ? lent->shape.data() : nullptr;
    view->strides = strided ? lent->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = lent.release();
    view->obj = Py_NewRef(self);
    return 0;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) noexcept {
  delete static_cast<Lent*>(view->internal);
}

}  // namespace

PyType_Slot tensor_buffer_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

}  // namespace gradus::python
