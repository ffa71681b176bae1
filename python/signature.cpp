#include "python/signature.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "python/errors.h"

namespace gradus::python {

namespace {

// What a word begins with.
enum class Token : uint8_t {
  tensor = 1,
  none,
  yes,
  no,
  integer,
  real,
  complex,
  object,
  string,
  list,
  tuple,
  dict,
  other_tuple,
  frozen,
  keyword
};

constexpr int deepest = 200;  // trees in trees

class Reader {
 public:
  Reader(Signature& out, bool recording) : out_(out), recording_(recording) {}

  // Whether floats are tensors from now on.
  void take_floats(bool on) { floats_ = on; }

  void read(nb::handle x) {
    PyObject* p = x.ptr();
    PyTypeObject* type = Py_TYPE(p);
    if (reinterpret_cast<PyObject*>(type) == tensor_type())
      return in_object_ ? object(Token::object, x) : tensor(*nb::inst_ptr<Variable>(x));
    if (p == Py_None) return word(Token::none);
    if (type == &PyBool_Type) return word(p == Py_True ? Token::yes : Token::no);
    if (floats_ && !in_object_ && PyFloat_Check(p))
      return tensor(variable_from(x, DType::f64, "an argument"));
    if (type == &PyFloat_Type)
      return word(Token::real, std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(p)));
    if (type == &PyLong_Type) return integer(x);
    if (type == &PyUnicode_Type) return object(Token::string, x);
    if (PyTuple_Check(p)) return tuple(x);
    if (PyList_Check(p)) return list(x);
    if (PyDict_Check(p)) return dict(x);
    if (type == &PyComplex_Type) return complex(PyComplex_AsCComplex(p));
    if (is_array(x)) return in_object_ ? object(Token::object, x) : array(x);
    if (nb::object parts = parts_of_frozen(x)) return frozen(x, parts);
    object(Token::object, x);
  }

  void array(nb::handle x) { tensor(variable_from(x, "an argument")); }

  void tensor(const Variable& v) {
    check_has_values(v);
    const uint64_t wanted = recording_ && v.requires_grad() ? 1 : 0;
    const auto shape = v.shape();
    word(Token::tensor, static_cast<uint64_t>(v.dtype()) << 40 | wanted << 32 | shape.size());
    for (int64_t n : shape) out_.words.push_back(static_cast<uint64_t>(n));
    out_.tensors.push_back(v);
  }

  void object(Token token, nb::handle x) {
    word(token);
    out_.objects.push_back(nb::borrow(x));
  }

 private:
  static PyObject* tensor_type() {
    static PyObject* type = nb::type<Variable>().ptr();
    return type;
  }

  // An array that becomes a tensor, by its type; some objects say so themselves. The type of arrays
  // has their attributes, too.
  static bool is_array(nb::handle x) {
    if (PyType_Check(x.ptr())) return false;
    static PyObject* interface = PyUnicode_InternFromString("__array_interface__");
    static PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(x.ptr()));
    return PyObject_HasAttr(type, interface) || PyObject_HasAttr(type, dlpack) ||
           PyObject_HasAttr(x.ptr(), interface) || PyObject_HasAttr(x.ptr(), dlpack);
  }

  void word(Token token, uint64_t value) {
    word(token);
    out_.words.push_back(value);
  }
  void word(Token token) { out_.words.push_back(static_cast<uint64_t>(token) << 56); }
  void open(Token token, Py_ssize_t size) {
    if (++depth_ > deepest) throw Error("arguments are trees of more than {} levels", deepest);
    out_.words.push_back(static_cast<uint64_t>(token) << 56 | static_cast<uint64_t>(size));
  }

  void integer(nb::handle x) {
    int overflow = 0;
    const int64_t n = PyLong_AsLongLongAndOverflow(x.ptr(), &overflow);
    if (overflow != 0) return object(Token::object, x);
    word(Token::integer, static_cast<uint64_t>(n));
  }
  void tuple(nb::handle x) {
    const Py_ssize_t size = PyTuple_GET_SIZE(x.ptr());
    const bool plain = PyTuple_CheckExact(x.ptr());
    open(plain ? Token::tuple : Token::other_tuple, size);
    if (!plain) out_.objects.push_back(nb::borrow(x.type()));
    for (Py_ssize_t i = 0; i < size; ++i) read(PyTuple_GET_ITEM(x.ptr(), i));
    --depth_;
  }
  void list(nb::handle x) {
    open(Token::list, PyList_GET_SIZE(x.ptr()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(x.ptr()); ++i)
      read(nb::borrow(PyList_GET_ITEM(x.ptr(), i)));
    --depth_;
  }
  void dict(nb::handle x) {
    open(Token::dict, PyDict_GET_SIZE(x.ptr()));
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(x.ptr(), &at, &key, &value);) {
      const nb::object item = nb::borrow(value);
      part(nb::borrow(key));
      read(item);
    }
    --depth_;
  }
  void complex(Py_complex z) {
    word(Token::complex, std::bit_cast<uint64_t>(z.real));
    out_.words.push_back(std::bit_cast<uint64_t>(z.imag));
  }
  void frozen(nb::handle x, nb::handle parts) {
    open(Token::frozen, 0);
    out_.objects.push_back(nb::borrow(x.type()));
    part(parts);
    --depth_;
  }
  // What belongs to an object or a key. A tensor there is no input.
  void part(nb::handle x) {
    const bool outside = std::exchange(in_object_, true);
    read(x);
    in_object_ = outside;
  }

  // What an instance of a frozen dataclass holds, by name; nothing for what is none.
  static nb::object parts_of_frozen(nb::handle x) {
    static PyObject* parameters = PyUnicode_InternFromString("__dataclass_params__");
    const nb::handle type = x.type();
    if (!PyObject_HasAttr(type.ptr(), parameters)) return {};
    // A class derived from one may allow more: it has to say so of itself.
    if (!type.attr("__dict__")
             .attr("__contains__")(nb::handle(parameters))
             .is(nb::handle(Py_True)) ||
        !type.attr("__dataclass_params__").attr("frozen").is(nb::handle(Py_True)))
      return {};
    nb::dict parts;
    if (nb::hasattr(x, "__dict__")) parts.update(nb::cast<nb::dict>(x.attr("__dict__")));
    for (nb::handle name : nb::object(type.attr("__dataclass_fields__"))) {
      nb::object value = nb::steal(PyObject_GenericGetAttr(x.ptr(), name.ptr()));
      if (value)
        parts[name] = value;
      else
        PyErr_Clear();  // an argument of __init__ alone
    }
    return parts;
  }

  Signature& out_;
  const bool recording_;
  bool in_object_ = false;
  bool floats_ = false;
  int depth_ = 0;
};

// By value where that runs nothing of the user's.
bool same_object(nb::handle a, nb::handle b) {
  if (a.is(b)) return true;
  const PyTypeObject* type = Py_TYPE(a.ptr());
  if (type != Py_TYPE(b.ptr())) return false;
  if (type == &PyUnicode_Type) return PyUnicode_Compare(a.ptr(), b.ptr()) == 0;
  if (type != &PyLong_Type && type != &PyBytes_Type && type != &PyRange_Type) return false;
  return PyObject_RichCompareBool(a.ptr(), b.ptr(), Py_EQ) == 1;
}

}  // namespace

Signature Signature::of(nb::handle args, nb::handle kwargs, bool recording,
                        std::span<const int64_t> floats) {
  Signature s;
  Reader reader(s, recording);
  const Py_ssize_t size = PyTuple_GET_SIZE(args.ptr());
  s.words.push_back(static_cast<uint64_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    reader.take_floats(
        std::ranges::any_of(floats, [&](int64_t n) { return n == i || n + size == i; }));
    reader.read(PyTuple_GET_ITEM(args.ptr(), i));
  }
  reader.take_floats(false);
  if (!kwargs.is_valid()) return s;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs.ptr(), &at, &key, &value);) {
    reader.object(Token::keyword, key);
    reader.read(value);
  }
  return s;
}

uint64_t Signature::hash() const {
  uint64_t h = words.size();
  for (uint64_t w : words) {
    h = (h ^ w) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  }
  return h;
}

bool Signature::same_as(const Signature& o) const {
  return std::ranges::equal(words, o.words) && objects.size() == o.objects.size() &&
         std::ranges::equal(objects, o.objects, same_object);
}

Structure::Structure(nb::handle tree, nb::handle place) {
  PyObject* p = tree.ptr();
  if (tree.type().is(place)) {
    kind_ = Kind::tensor;
    index_ = nb::cast<size_t>(tree.attr("index"));
  } else if (PyList_Check(p) || PyTuple_Check(p)) {
    kind_ = PyList_Check(p) ? Kind::list : PyTuple_CheckExact(p) ? Kind::tuple : Kind::other_tuple;
    if (kind_ == Kind::other_tuple) value_ = nb::borrow(tree.type());
    for (nb::handle item : tree) items_.emplace_back(item, place);
  } else if (PyDict_Check(p)) {
    kind_ = Kind::dict;
    for (auto [key, value] : nb::cast<nb::dict>(tree)) {
      keys_.push_back(nb::borrow(key));
      items_.emplace_back(value, place);
    }
  } else {
    value_ = nb::borrow(tree);
  }
}

nb::object Structure::build(std::span<const Variable> tensors) const {
  switch (kind_) {
    case Kind::tensor:
      return to_python(tensors[index_]);
    case Kind::value:
      return value_;
    case Kind::dict: {
      nb::dict d;
      for (size_t i = 0; i < items_.size(); ++i) d[keys_[i]] = items_[i].build(tensors);
      return d;
    }
    case Kind::list: {
      nb::list l;
      for (const Structure& item : items_) l.append(item.build(tensors));
      return l;
    }
    default:
      break;
  }
  nb::object t = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(items_.size())));
  for (size_t i = 0; i < items_.size(); ++i)
    PyTuple_SET_ITEM(t.ptr(), static_cast<Py_ssize_t>(i), items_[i].build(tensors).release().ptr());
  return kind_ == Kind::tuple ? t : value_(*nb::borrow<nb::tuple>(t));
}

int Structure::traverse(visitproc visit, void* arg) const {
  Py_VISIT(value_.ptr());
  for (const nb::object& key : keys_) Py_VISIT(key.ptr());
  for (const Structure& item : items_)
    if (int found = item.traverse(visit, arg)) return found;
  return 0;
}

}  // namespace gradus::python
