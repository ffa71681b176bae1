#include "io/pt2/schema.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "gradus/messages.h"
#include "io/node_lines.h"

namespace gradus::pt2 {

namespace {

using Json = nlohmann::json;
using SizesByName = std::map<std::string, Dim, std::less<>>;

constexpr int known_major = 8, deepest_graph = 32, deepest_json = 16 * deepest_graph;

struct TorchDType {
  int64_t number;
  std::string_view name;
  std::optional<DType> here = {};
};
constexpr std::array<TorchDType, 21> torch_dtypes{
    {{1, "uint8", DType::u8},       {2, "int8", DType::i8},         {3, "int16", DType::i16},
     {4, "int32", DType::i32},      {5, "int64", DType::i64},       {6, "float16", DType::f16},
     {7, "float32", DType::f32},    {8, "float64", DType::f64},     {9, "complex32"},
     {10, "complex64", DType::f32}, {11, "complex128", DType::f64}, {12, "bool", DType::boolean},
     {13, "bfloat16", DType::bf16}, {28, "uint16", DType::u16},     {29, "float8_e4m3fn"},
     {30, "float8_e5m2"},           {31, "float8_e4m3fnuz"},        {32, "float8_e5m2fnuz"},
     {33, "float8_e8m0fnu"},        {34, "uint32", DType::u32},     {35, "uint64", DType::u64}}};

const TorchDType* find_dtype(int64_t n) {
  for (const TorchDType& d : torch_dtypes)
    if (d.number == n) return &d;
  return nullptr;
}

// One that is not here.
bool is_foreign(int64_t n) {
  const TorchDType* d = find_dtype(n);
  return d && !d->here;
}

bool is_complex(int64_t n) { return n == 10 || n == 11; }

// The document

// A bracket of one byte takes some eighty bytes as a value.
bool is_shallow(int depth, Json::parse_event_t, const Json&) {
  if (depth > deepest_json)
    throw Error(
        "lists and objects are nested more than {} deep; copy the archive again, or export it anew",
        deepest_json);
  return true;
}

Json parse(std::string_view text) {
  try {
    return Json::parse(text, is_shallow);
  } catch (const Json::exception& e) {
    throw Error("it is no JSON ({}); copy the archive again, or export it anew", e.what());
  }
}

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) throw Error("an object is wanted where '{}' is looked for", key);
  auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}
const Json& need(const Json& object, const char* key) {
  const Json* found = find(object, key);
  if (!found) throw Error("'{}' is missing", key);
  return *found;
}
const Json& list(const Json& object, const char* key) {
  const Json& found = need(object, key);
  if (!found.is_array()) throw Error("'{}' is no list", key);
  return found;
}
std::string text_of(const Json& value) {
  if (!value.is_string()) throw Error("a text is wanted");
  return value.get<std::string>();
}
std::string text(const Json& object, const char* key) { return text_of(need(object, key)); }
bool truth(const Json& value) {
  if (!value.is_boolean()) throw Error("true or false is wanted");
  return value.get<bool>();
}
int64_t integer(const Json& value) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= std::numeric_limits<int64_t>::max()
                        : value.is_number_integer();
  if (!fits) throw Error("an integer is wanted");
  return value.get<int64_t>();
}
// JSON has no infinities: they are texts.
double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value == "Infinity") return infinity;
  if (value == "-Infinity") return -infinity;
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  throw Error("a number is wanted");
}
template <class T>
std::vector<T> all(const Json& values, T (*read)(const Json&)) {
  if (!values.is_array()) throw Error("a list is wanted");
  std::vector<T> read_all;
  for (const Json& v : values) read_all.push_back(read(v));
  return read_all;
}
// The one entry of a tagged union: its key.
std::pair<std::string, const Json*> tagged(const Json& value) {
  if (!value.is_object() || value.size() != 1) throw Error("an object with one entry is wanted");
  return {value.begin().key(), &value.begin().value()};
}

// Sizes

Dim size(const Json& value, const SizesByName* names) {
  auto [kind, held] = tagged(value);
  if (kind == "as_int") return integer(*held);
  if (kind == "as_expr") return read_size_expression(text(*held, "expr_str"));
  if (kind == "as_name" && names) {
    auto it = names->find(text_of(*held));
    if (it == names->end()) throw Error("no size is called '{}'", printable(text_of(*held)));
    return it->second;
  }
  throw Error("a size is wanted, not '{}'", printable(kind));
}
Dims sizes(const Json& values, const SizesByName* names) {
  if (!values.is_array()) throw Error("a list of sizes is wanted");
  Dims read;
  for (const Json& v : values) read.push_back(size(v, names));
  return read;
}

Dims shape_of(const Json& tensor) {
  constexpr size_t most = 64;  // as torch has it
  Dims shape = sizes(need(tensor, "sizes"), nullptr);
  if (shape.size() > most) throw Error("it has more than {} dimensions", most);
  return shape;
}

Dims strides_of(const Json& tensor) {
  const auto strides = tensor.find("strides");
  return strides == tensor.end() ? Dims() : sizes(*strides, nullptr);
}

// Arguments

Subgraph graph(const Json& value, std::string name, int depth);

TensorName tensor_name(const Json& value) { return {text(value, "name")}; }

TensorNames tensor_names(const Json& values, bool optional) {
  TensorNames names;
  if (!values.is_array()) throw Error("a list of tensors is wanted");
  for (const Json& v : values) {
    if (!optional) {
      names.push_back(tensor_name(v).name);
      continue;
    }
    auto [kind, held] = tagged(v);
    if (kind == "as_tensor")
      names.push_back(tensor_name(*held).name);
    else
      names.push_back(std::nullopt);
  }
  return names;
}

Argument argument(const Json& value, const SizesByName& names, int depth) {
  if (depth > deepest_graph)
    throw Error("arguments within arguments, more than {} deep", deepest_graph);
  auto [kind, held] = tagged(value);
  const Json& v = *held;
  if (kind == "as_none") return {};
  if (kind == "as_tensor") return tensor_name(v);
  if (kind == "as_tensors") return tensor_names(v, false);
  if (kind == "as_optional_tensors") return tensor_names(v, true);
  if (kind == "as_optional_tensor") return argument(v, names, depth + 1);
  if (kind == "as_int") return Dim(integer(v));
  if (kind == "as_sym_int") return size(v, &names);
  if (kind == "as_sym_ints") return sizes(v, &names);
  if (kind == "as_ints") {
    Dims dims;
    for (int64_t i : all(v, integer)) dims.push_back(i);
    return dims;
  }
  if (kind == "as_float") return number(v);
  if (kind == "as_floats") return all(v, number);
  if (kind == "as_bool") return truth(v);
  if (kind == "as_sym_float" || kind == "as_sym_bool") {
    auto [form, number] = tagged(v);
    if (form == "as_name") return NumberName{text_of(*number)};
    return argument(v, names, depth + 1);
  }
  if (kind == "as_bools") return all(v, truth);
  if (kind == "as_string") return text_of(v);
  if (kind == "as_strings") return all(v, text_of);
  if (kind == "as_scalar_type") return ScalarType{integer(v)};
  if (kind == "as_device" || kind == "as_layout" || kind == "as_memory_format") return Ignored();
  if (kind == "as_graph")
    return std::make_shared<Subgraph>(graph(need(v, "graph"), text(v, "name"), depth + 1));
  if (kind == "as_complex") return ComplexNumber{number(need(v, "real")), number(need(v, "imag"))};
  return OtherKind{kind};
}

Argument output(const Json& value, const SizesByName& names, int depth) {
  auto [kind, held] = tagged(value);
  if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float")
    return NumberName{text(*held, "as_name")};
  return argument(value, names, depth);
}

// Of "KEY,NAME,CLASS;KEY,NAME,CLASS": names are those from the outermost module, which has none,
// and a key ends with "@1" where a module runs for the second time.
std::string module_of(std::string_view stack) {
  std::string module;
  std::string_view outer;
  while (!stack.empty()) {
    const size_t end = std::min(stack.find(';'), stack.size());
    const std::string_view entry = stack.substr(0, end);
    stack.remove_prefix(std::min(end + 1, stack.size()));
    const size_t comma = entry.find(',');
    if (comma == entry.npos) continue;
    const std::string_view key = entry.substr(0, comma);
    const std::string_view name = entry.substr(comma + 1, entry.find(',', comma + 1) - comma - 1);
    std::string own(name_within(std::exchange(outer, name), name));
    if (const size_t at = key.rfind('@'); at != key.npos && !own.empty()) own += key.substr(at);
    enter_module(module, own);
  }
  return module;
}

Node node(const Json& value, const SizesByName& names, int depth) {
  Node n;
  n.target = text(value, "target");
  if (const Json* name = find(value, "name")) n.name = text_of(*name);
  const std::string place = n.name.empty() ? n.target : n.name;
  try {
    for (const Json& i : list(value, "inputs"))
      n.inputs.push_back({text(i, "name"), argument(need(i, "arg"), names, depth)});
    for (const Json& o : list(value, "outputs")) n.outputs.push_back(output(o, names, depth));
    if (const Json* metadata = find(value, "metadata")) {
      if (const Json* trace = find(*metadata, "stack_trace")) n.trace = text_of(*trace);
      if (const Json* stack = find(*metadata, "nn_module_stack"))
        n.module = module_of(text_of(*stack));
    }
  } catch (const Error& e) {
    throw Error("node '{}': {}", printable(place), e.bare());
  }
  return n;
}

Subgraph graph(const Json& value, std::string name, int depth) {
  if (depth > deepest_graph) throw Error("graphs within graphs, more than {} deep", deepest_graph);
  Subgraph g;
  g.name = std::move(name);
  SizesByName names;
  for (const auto& [key, held] : need(value, "sym_int_values").items())
    names.emplace(key, size(held, nullptr));
  g.integers = names;
  for (const auto& [key, held] : need(value, "tensor_values").items()) {
    try {
      const int64_t dtype = integer(need(held, "dtype"));
      if (is_foreign(dtype))
        g.foreign.emplace(key, dtype);
      else
        g.tensors.emplace(
            key, TensorMeta{dtype_of(dtype), shape_of(held), strides_of(held), is_complex(dtype)});
    } catch (const Error& e) {
      throw Error("tensor '{}': {}", printable(key), e.bare());
    }
  }
  for (const Json& i : list(value, "inputs")) g.inputs.push_back(argument(i, names, depth));
  for (const Json& n : list(value, "nodes")) g.nodes.push_back(node(n, names, depth));
  for (const Json& o : list(value, "outputs")) g.outputs.push_back(argument(o, names, depth));
  return g;
}

// The signature

InputSpec input_spec(const Json& value) {
  using Kind = InputSpec::Kind;
  auto [kind, held] = tagged(value);
  if (kind == "user_input") {
    auto [form, number] = tagged(need(*held, "arg"));
    if (form.starts_with("as_sym_") && number->is_object() && number->contains("as_name"))
      return {Kind::user, NumberName{text(*number, "as_name")}, ""};
    return {Kind::user, argument(need(*held, "arg"), {}, 0), ""};
  }
  // Its value stands where the program uses it.
  if (kind == "constant_input") return {Kind::user, OtherKind{kind}, ""};
  const Json& arg = need(*held, "arg");
  if (kind == "parameter")
    return {Kind::parameter, tensor_name(arg), text(*held, "parameter_name")};
  if (kind == "buffer") return {Kind::buffer, tensor_name(arg), text(*held, "buffer_name")};
  if (kind == "tensor_constant")
    return {Kind::constant, tensor_name(arg), text(*held, "tensor_constant_name")};
  throw Error("inputs of the kind '{}' are not supported", printable(kind));
}

OutputSpec output_spec(const Json& value) {
  using Kind = OutputSpec::Kind;
  auto [kind, held] = tagged(value);
  const Json& arg = need(*held, "arg");
  if (kind == "user_output") {
    auto [held_kind, _] = tagged(arg);
    if (held_kind.starts_with("as_sym_")) return {Kind::user, output(arg, {}, 0), ""};
    return {Kind::user, argument(arg, {}, 0), ""};
  }
  if (kind == "loss_output") return {Kind::user, tensor_name(arg), ""};
  if (kind == "buffer_mutation")
    return {Kind::buffer_mutation, tensor_name(arg), text(*held, "buffer_name")};
  if (kind == "user_input_mutation")
    return {Kind::input_mutation, tensor_name(arg), text(*held, "user_input_name")};
  if (kind == "parameter_mutation")
    return {Kind::parameter_mutation, tensor_name(arg), text(*held, "parameter_name")};
  throw Error("outputs of the kind '{}' are not supported", printable(kind));
}

// Where the leaves of a tree of arguments are, as torch's pytrees are written; nothing where a node
// is of another kind than those of Python.
bool add_paths(const Json& tree, const std::vector<std::string>& place,
               std::vector<std::vector<std::string>>& paths) {
  if (place.size() > deepest_graph) return false;
  const Json* type = find(tree, "type");
  if (!type) {
    paths.push_back(place);
    return true;
  }
  const std::string kind = text_of(*type);
  if (kind != "builtins.dict" && kind != "builtins.list" && kind != "builtins.tuple") return false;
  const Json& children = list(tree, "children_spec");
  Json keys;
  if (kind == "builtins.dict") keys = parse(text(tree, "context"));
  for (size_t i = 0; i < children.size(); ++i) {
    std::vector<std::string> inner = place;
    if (!keys.is_array())
      inner.push_back(fmt::format("{}", i));
    else if (i < keys.size())
      inner.push_back(keys[i].is_string() ? text_of(keys[i]) : keys[i].dump());
    if (!add_paths(children[i], inner, paths)) return false;
  }
  return true;
}

// The arguments of the model that its inputs are, by its own call: ((args), {kwargs}).
void add_input_paths(const Json& module, std::vector<InputSpec>& inputs) {
  const Json* calls = find(module, "module_call_graph");
  if (!calls || !calls->is_array() || calls->empty()) return;
  const Json* signature = find((*calls)[0], "signature");
  const Json* names = signature ? find(*signature, "forward_arg_names") : nullptr;
  if (!names || !find(*signature, "in_spec")) return;
  const std::vector<std::string> arguments = all(*names, text_of);
  const Json spec = parse(text(*signature, "in_spec"));
  std::vector<std::vector<std::string>> paths;
  if (!spec.is_array() || spec.size() != 2 || !add_paths(spec[1], {}, paths)) return;
  std::vector<InputSpec*> users;
  for (InputSpec& i : inputs)
    if (i.kind == InputSpec::Kind::user) users.push_back(&i);
  if (users.size() != paths.size()) return;
  for (size_t i = 0; i < users.size(); ++i) {
    std::vector<std::string>& path = paths[i];
    if (path.size() < 2) return;
    if (path[0] == "0") {
      size_t n = 0;
      const char* const end = path[1].data() + path[1].size();
      const auto [last, fault] = std::from_chars(path[1].data(), end, n);
      if (fault != std::errc() || last != end || n >= arguments.size()) return;
      path[1] = arguments[n];
    }
    users[i]->path.assign(path.begin() + 1, path.end());
  }
}

void check_version(const Json& document) {
  const Json& version = need(document, "schema_version");
  const int64_t major = integer(need(version, "major"));
  if (major != known_major)
    throw Error(
        "its schema has version {}; {} is known here: export it anew with torch 2.9 or later: "
        "torch.export.save(torch.export.export(module, args), path)",
        major, known_major);
  // Decompositions turn `detach` into `alias` and drop no_grad regions.
  if (const Json* dialects = find(document, "verifiers"))
    if (*dialects != Json::array({"TRAINING"}))
      throw Error(
          "the program was decomposed (its dialect is not TRAINING), which loses where derivatives "
          "stop: save what torch.export.export gives, without run_decompositions()");
}

Sizes numbers(const Json& values) {
  Sizes found;
  for (const Dim& d : sizes(values, nullptr)) {
    if (!d.is_constant()) throw Error("a stored tensor's size is no number");
    found.push_back(d.value());
  }
  return found;
}

StoredTensor stored_tensor(const std::string& name, const Json& value) {
  StoredTensor t;
  t.name = name;
  t.member = text(value, "path_name");
  if (const Json* parameter = find(value, "is_param")) t.parameter = truth(*parameter);
  if (const Json* pickled = find(value, "use_pickle"); pickled && truth(*pickled))
    t.member += ".pickle";
  const Json* meta = find(value, "tensor_meta");
  if (!meta) return t;  // no tensor: a pickled object
  t.dtype = dtype_of(integer(need(*meta, "dtype")));
  t.complex = is_complex(integer(need(*meta, "dtype")));
  t.requires_grad = truth(need(*meta, "requires_grad"));
  t.sizes = numbers(need(*meta, "sizes"));
  t.strides = numbers(need(*meta, "strides"));
  const Dim offset = size(need(*meta, "storage_offset"), nullptr);
  if (!offset.is_constant()) throw Error("its offset is no number");
  t.offset = offset.value();
  if (t.sizes.size() != t.strides.size())
    throw Error("it has {} sizes and {} strides", t.sizes.size(), t.strides.size());
  return t;
}

}  // namespace

std::string dtype_name(int64_t n) {
  const TorchDType* d = find_dtype(n);
  return d ? std::string(d->name) : std::string();
}

DType dtype_of(int64_t n) {
  const TorchDType* d = find_dtype(n);
  if (!d) throw Error("{} is the number of no dtype of PyTorch", n);
  if (!d->here) throw Error("the dtype {} is not supported", d->name);
  return *d->here;
}

ir::Type type_of(const TensorMeta& meta) {
  ir::Type type(meta.dtype, meta.sizes);
  if (meta.complex) type.dims.push_back(2);
  return type;
}

std::string_view complex_name(DType of_parts) {
  return of_parts == DType::f32 ? "complex64" : "complex128";
}

ExportedProgram read_exported_program(std::string_view json) try {
  const Json document = parse(json);
  check_version(document);
  ExportedProgram program;
  const Json& module = need(document, "graph_module");
  program.graph = graph(need(module, "graph"), "main", 0);
  const Json& signature = need(module, "signature");
  for (const Json& i : list(signature, "input_specs")) program.inputs.push_back(input_spec(i));
  for (const Json& o : list(signature, "output_specs")) program.outputs.push_back(output_spec(o));
  add_input_paths(module, program.inputs);
  if (const Json* guards = find(document, "guards_code")) program.guards = all(*guards, text_of);
  if (const Json* ranges = find(document, "range_constraints"))
    for (const auto& [name, held] : ranges->items()) {
      Range range;
      if (const Json* least = find(held, "min_val")) range.min = integer(*least);
      if (const Json* most = find(held, "max_val")) range.max = integer(*most);
      program.ranges.emplace(name, range);
    }
  if (const Json* version = find(document, "torch_version"))
    program.torch_version = text_of(*version);
  return program;
} catch (const Json::exception& e) {
  throw Error("its JSON is no exported program: {}", e.what());
}

std::vector<StoredTensor> read_stored_tensors(std::string_view json) try {
  const Json document = parse(json);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, held] : need(document, "config").items()) {
    try {
      tensors.push_back(stored_tensor(name, held));
    } catch (const Error& e) {
      throw Error("tensor '{}': {}", printable(name), e.bare());
    }
  }
  return tensors;
} catch (const Json::exception& e) {
  throw Error("its JSON is no configuration of tensors: {}", e.what());
}

}  // namespace gradus::pt2
