#include "io/pt2/call.h"

#include <algorithm>

#include "gradus/messages.h"
#include "io/pt2/importer.h"

namespace gradus::pt2 {

namespace {

// What an argument is, for messages.
std::string_view kind_of(const Argument& a) {
  constexpr std::string_view names[] = {"None",
                                        "a tensor",
                                        "a list of tensors",
                                        "an integer",
                                        "a list of integers",
                                        "a float",
                                        "a list of floats",
                                        "a bool",
                                        "a list of bools",
                                        "a text",
                                        "a list of texts",
                                        "a dtype",
                                        "a graph",
                                        "a number that is computed",
                                        "a place of memory",
                                        "an argument of another kind"};
  return names[a.index()];
}

template <class T>
const T& held(const Argument& a, std::string_view name, std::string_view wanted) {
  if (const T* t = std::get_if<T>(&a)) return *t;
  throw Error("its argument '{}' is {}; {} is wanted", name, kind_of(a), wanted);
}

int64_t constant_of(const Dim& d, std::string_view name) {
  if (!d.is_constant())
    throw Error("its argument '{}' is the size {}, and has to be a number", name, d.to_string());
  return d.value();
}

}  // namespace

Call::Call(Importer& importer, const RuleEntry& rule, const Node& node, ops::World& world)
    : importer_(importer), rule_(rule), node_(node), world_(world), op_(node.target) {
  op_ = operator_of(op_);
  base_ = op_.substr(0, op_.rfind('.'));
  if (base_.ends_with('_') && !base_.starts_with("__")) base_.remove_suffix(1);
  for (const Argument& o : node.outputs) {
    if (const auto* one = std::get_if<TensorName>(&o)) result_names_.push_back(one->name);
    if (const auto* list = std::get_if<TensorNames>(&o))
      for (const auto& name : *list) result_names_.push_back(name.value_or(""));
    if (std::holds_alternative<std::monostate>(o)) result_names_.emplace_back();
  }
}

const Argument* Call::find(std::string_view name) const {
  for (const NamedArgument& i : node_.inputs)
    if (i.name == name) return &i.value;
  return nullptr;
}

const Argument& Call::need(std::string_view name) const {
  if (const Argument* a = find(name)) return *a;
  throw Error("its argument '{}' is missing", name);
}

bool Call::given(std::string_view name) const {
  const Argument* a = find(name);
  return a && !std::holds_alternative<std::monostate>(*a);
}

bool Call::is_tensor(std::string_view name) const {
  const Argument* a = find(name);
  return a && std::holds_alternative<TensorName>(*a);
}

TensorPtr Call::tensor(std::string_view name) const {
  return importer_.find(held<TensorName>(need(name), name, "a tensor").name);
}

Value Call::x(std::string_view name) {
  const Argument& a = need(name);
  if (std::holds_alternative<TensorName>(a)) return tensor(name)->read();
  if (const auto* number = std::get_if<NumberName>(&a)) return importer_.number(number->name);
  if (const Dim* d = std::get_if<Dim>(&a)) return importer_.number(*d);
  if (const double* f = std::get_if<double>(&a)) return Value::number(*f);
  if (const bool* b = std::get_if<bool>(&a)) return Value{nullptr, ir::Number::of(*b), {}, {}};
  throw Error("its argument '{}' is {}; a tensor or a number is wanted", name, kind_of(a));
}

Value Call::x_or_undefined(std::string_view name) { return given(name) ? x(name) : Value(); }

std::vector<Value> Call::tensors(std::string_view name) {
  std::vector<Value> values;
  for (const auto& n : held<TensorNames>(need(name), name, "a list of tensors"))
    values.push_back(n ? importer_.find(*n)->read() : Value());
  return values;
}

int64_t Call::dim(std::string_view name, int rank) const {
  const int64_t d = integer(name), nameable = std::max(rank, 1);
  if (d < -nameable || d >= nameable)
    throw Error("its argument '{}' is {}, and the tensor has {} dimensions", name, d, rank);
  return d < 0 ? d + nameable : d;
}
int64_t Call::dim(std::string_view name, int64_t absent, int rank) const {
  if (given(name)) return dim(name, rank);
  return absent < 0 ? absent + std::max(rank, 1) : absent;
}

Dim Call::size(std::string_view name) const { return held<Dim>(need(name), name, "an integer"); }
Dim Call::size(std::string_view name, const Dim& absent) const {
  return given(name) ? size(name) : absent;
}

Dims Call::sizes(std::string_view name) const {
  const Argument& a = need(name);
  if (const Dim* one = std::get_if<Dim>(&a)) return {*one};
  // An empty list says nothing of its kind.
  if (const auto* none = std::get_if<TensorNames>(&a); none && none->empty()) return {};
  return held<Dims>(a, name, "a list of integers");
}

int64_t Call::integer(std::string_view name) const {
  const Argument& a = need(name);
  if (const bool* b = std::get_if<bool>(&a)) return *b;
  return constant_of(held<Dim>(a, name, "an integer"), name);
}
int64_t Call::integer(std::string_view name, int64_t absent) const {
  return given(name) ? integer(name) : absent;
}

Ints Call::integers(std::string_view name) const {
  Ints values;
  for (const Dim& d : sizes(name)) values.push_back(constant_of(d, name));
  return values;
}
Ints Call::integers(std::string_view name, const Ints& absent) const {
  return given(name) ? integers(name) : absent;
}

double Call::number(std::string_view name) const {
  const Argument& a = need(name);
  if (const double* f = std::get_if<double>(&a)) return *f;
  return static_cast<double>(integer(name));
}
double Call::number(std::string_view name, double absent) const {
  return given(name) ? number(name) : absent;
}

std::vector<double> Call::numbers(std::string_view name) const {
  const Argument& a = need(name);
  if (const auto* list = std::get_if<std::vector<double>>(&a)) return *list;
  std::vector<double> values;
  for (int64_t i : integers(name)) values.push_back(static_cast<double>(i));
  return values;
}

bool Call::flag(std::string_view name, bool absent) const {
  return given(name) ? held<bool>(need(name), name, "a bool") : absent;
}

std::vector<bool> Call::truths(std::string_view name) const {
  return held<std::vector<bool>>(need(name), name, "a list of bools");
}

std::string Call::text(std::string_view name, std::string_view absent) const {
  return given(name) ? held<std::string>(need(name), name, "a text") : std::string(absent);
}

std::optional<DType> Call::dtype(std::string_view name) const {
  if (!given(name)) return std::nullopt;
  return dtype_of(held<ScalarType>(need(name), name, "a dtype").number);
}

Tensor Call::known(std::string_view name) {
  Tensor value = importer_.known(x(name));
  if (!value.defined())
    throw Error(
        "its argument '{}' decides what is made of the program, and is not known before it "
        "runs",
        name);
  return value;
}

const TensorMeta& Call::meta(std::string_view name) const {
  return importer_.meta(held<TensorName>(need(name), name, "a tensor").name);
}

const TensorMeta& Call::result(size_t i) const {
  if (i >= result_names_.size()) throw Error("it has no result {}", i);
  return importer_.meta(result_names_[i]);
}

bool Call::wants(size_t i) const {
  return i < result_names_.size() && importer_.is_read(result_names_[i]);
}

void Call::give(Value value) { given_.push_back(std::make_shared<TensorValue>(std::move(value))); }
void Call::give_nothing() { given_.push_back(nullptr); }
void Call::give_view(std::string_view of, View view) {
  given_.push_back(std::make_shared<TensorValue>(*tensor(of), std::move(view)));
}
void Call::give_same(std::string_view of) { given_.push_back(tensor(of)); }

void Call::write(std::string_view name, const Value& value) {
  TensorPtr target = tensor(name);
  const ir::Type type = target->read().type;
  Value written = value.is_number() ? ops::full(world_, {}, 0, type.dtype) + value : value;
  written = ops::expand(ops::cast(written, type.dtype), type.dims);
  target->write(importer_.as_written(*target, written));
}

void Call::view_again(std::string_view name, View view) {
  tensor(name)->view_again(std::move(view));
}

Value as(const Value& x, DType dtype) { return x.is_number() ? x : ops::cast(x, dtype); }

}  // namespace gradus::pt2
