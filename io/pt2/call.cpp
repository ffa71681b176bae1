#include "io/pt2/call.h"

#include <algorithm>

#include "gradus/messages.h"
#include "io/pt2/complex.h"
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
                                        "an argument of another kind",
                                        "a complex number"};
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

// Numbers under these names are data; others say how an operator works.
bool is_data(std::string_view name) {
  constexpr std::string_view data[] = {"self", "other", "value", "fill_value"};
  return std::ranges::find(data, name) != std::end(data);
}
// Tensors under these names are no data.
bool chooses(std::string_view name) {
  constexpr std::string_view choices[] = {"condition", "index", "indices", "mask", "repeats"};
  return std::ranges::find(choices, name) != std::end(choices);
}
bool is_one_number(const Argument& a) {
  return std::holds_alternative<Dim>(a) || std::holds_alternative<double>(a) ||
         std::holds_alternative<bool>(a) || std::holds_alternative<NumberName>(a);
}

}  // namespace

Call::Call(Importer& importer, const RuleEntry& rule, const Node& node, ops::World& world)
    : importer_(importer), rule_(&rule), node_(node), world_(world), op_(node.target) {
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
    if (i.name == name) return shown_ ? shown_number(i) : &i.value;
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
  if (const auto* one = std::get_if<TensorName>(&a)) return seen(one->name, name);
  if (const auto* number = std::get_if<NumberName>(&a)) return computed(*number);
  if (const Dim* d = std::get_if<Dim>(&a)) return importer_.number(*d);
  if (const double* f = std::get_if<double>(&a)) return Value::number(*f);
  if (const bool* b = std::get_if<bool>(&a)) return Value{nullptr, ir::Number::of(*b), {}, {}};
  throw Error("its argument '{}' is {}; a tensor or a number is wanted", name, kind_of(a));
}

Value Call::computed(const NumberName& number) const {
  Value value = importer_.number(number.name);
  if (!value.is_tensor() || !is_floating(value.dtype())) return value;
  for (const NamedArgument& i : node_.inputs)
    if (const auto* one = std::get_if<TensorName>(&i.value))
      if (const DType dtype = importer_.meta(one->name).dtype; is_floating(dtype))
        return ops::cast(value, dtype);
  if (result_names_.empty() || !is_floating(result().dtype)) return value;
  return ops::cast(value, result().dtype);
}

Value Call::x_or_undefined(std::string_view name) { return given(name) ? x(name) : Value(); }

std::vector<Value> Call::tensors(std::string_view name) {
  std::vector<Value> values;
  for (const auto& n : held<TensorNames>(need(name), name, "a list of tensors"))
    values.push_back(n ? seen(*n, name, values.size()) : Value());
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
  if (std::holds_alternative<NumberName>(a))
    throw Error(
        "its argument '{}' is computed from sizes that have names, and has to be a number; export "
        "the model with constants in the place of these sizes",
        name);
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

Value Call::settled(const Value& value) {
  const Tensor known = importer_.known(ops::contiguous(value));
  return known.defined() ? emit_all(world_, "constant", {}, {{"value", known}})[0] : value;
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

void Call::give(Value value) {
  if (!value.defined()) fail("one of its tensors is None");
  if (shown_) return shown_results_.push_back({std::move(value)}), void();
  given_.push_back(std::make_shared<TensorValue>(std::move(value)));
  given_.back()->memory().without_derivatives = importer_.is_without_derivatives();
}
void Call::give_nothing() {
  if (shown_) return shown_results_.emplace_back(), void();
  given_.push_back(nullptr);
}
void Call::give_view(std::string_view of, View view) {
  if (shown_)
    return shown_results_.push_back({view.part(x(of)), std::string(of), std::move(view)}), void();
  given_.push_back(std::make_shared<TensorValue>(*tensor(of), std::move(view)));
}
void Call::give_same(std::string_view of) {
  if (shown_) return shown_results_.push_back({x(of), std::string(of)}), void();
  given_.push_back(tensor(of));
}

void Call::write(std::string_view name, const Value& value) {
  if (shown_) fail("it writes to a complex tensor, which is not supported");
  if (!value.defined()) fail("one of its tensors is None");
  TensorPtr target = tensor(name);
  const ir::Type type = target->read().type;
  Value written = value.is_number() ? ops::full(world_, {}, 0, type.dtype) + value : value;
  written = ops::expand(ops::cast(written, type.dtype), type.dims);
  target->write(importer_.as_written(*target, written));
}

void Call::view_again(std::string_view name, View view) {
  if (shown_) fail("it turns a complex tensor in its place, which is not supported");
  tensor(name)->view_again(std::move(view));
}

// Of complex numbers

bool Call::is_complex(std::string_view name) const {
  for (const NamedArgument& i : node_.inputs) {
    if (i.name != name) continue;
    const auto* one = std::get_if<TensorName>(&i.value);
    return one ? importer_.is_complex(one->name) : std::holds_alternative<ComplexNumber>(i.value);
  }
  return false;
}

size_t Call::complex_place(std::string_view name, size_t at) const {
  size_t place = 0;
  for (const NamedArgument& i : node_.inputs) {
    if (!name.empty() && i.name == name) {
      if (const auto* list = std::get_if<TensorNames>(&i.value))
        for (size_t k = 0; k < at; ++k)
          place += (*list)[k].has_value() && importer_.is_complex(*(*list)[k]);
      return place;
    }
    if (const auto* list = std::get_if<TensorNames>(&i.value))
      for (const auto& n : *list) place += n.has_value() && importer_.is_complex(*n);
    else
      place += is_complex(i.name);
  }
  return place;
}
size_t Call::complex_operands(std::string_view hidden) const {
  return complex_place({}) - is_complex(hidden);
}

const Argument* Call::shown_number(const NamedArgument& argument) const {
  if (argument.name == shown_->hidden) return nullptr;
  const auto* number = std::get_if<ComplexNumber>(&argument.value);
  const bool sum = shown_->as == Shown::As::sum;
  const bool data = is_data(argument.name);
  const bool absent = sum && shown_->imaginary && data && is_one_number(argument.value);
  if (!number && !absent) return &argument.value;
  if (!data) fail("its argument '{}' is a complex number, which is not supported", argument.name);
  double shown = 0;
  if (number) {
    if (shown_->as == Shown::As::magnitude) fail("a complex number is among its operands");
    const size_t place = sum ? 0 : complex_place(argument.name);
    shown = shown_->imaginary >> place & 1 ? number->imaginary : number->real;
  }
  return &shown_numbers_.emplace_back(shown);
}

Value Call::seen(const std::string& name, std::string_view argument, size_t at) {
  Value whole = importer_.find(name)->read();
  if (!shown_) return whole;
  const bool sum = shown_->as == Shown::As::sum;
  if (!importer_.is_complex(name)) {
    const bool absent = sum && shown_->imaginary && !chooses(argument);
    return absent ? ops::zeros_like(whole) : whole;
  }
  if (shown_->as == Shown::As::magnitude) return magnitude_of(whole);
  const Pair parts = importer_.parts(whole);
  return shown_->imaginary >> (sum ? 0 : complex_place(argument, at)) & 1 ? parts.im : parts.re;
}

Pair Call::pair(std::string_view name) {
  const Argument& a = need(name);
  if (const auto* number = std::get_if<ComplexNumber>(&a))
    return {num(number->real), num(number->imaginary)};
  return is_complex(name) ? importer_.parts(x(name)) : Pair{x(name), {}};
}

std::vector<ShownResult> Call::run_shown(const Shown& shown) {
  const RuleEntry* own = rule_;
  const RuleEntry* rule = find_rule(op_);
  std::string name(op_);
  if (!rule) {  // it writes
    const size_t dot = op_.rfind('.');
    name = fmt::format("{}{}", base_, dot == op_.npos ? "" : op_.substr(dot));
    rule = find_rule(name);
  }
  if (!rule) fail("the operator is not supported");
  rule_ = rule;
  shown_ = &shown;
  shown_results_.clear();
  rule->rule(*this);
  shown_ = nullptr;
  rule_ = own;
  return std::exchange(shown_results_, {});
}

Value as(const Value& x, DType dtype) { return x.is_number() ? x : ops::cast(x, dtype); }

}  // namespace gradus::pt2
