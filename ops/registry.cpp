#include "gradus/registry.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gradus/error.h"
#include "gradus/messages.h"
#include "gradus/table.h"
#include "ops/collectives.h"
#include "ops/families.h"

namespace gradus::ops {

namespace {

struct Table {
  std::vector<const ir::Operator*> list;
  std::unordered_map<std::string_view, const ir::Operator*> by_name;
  std::unordered_map<const void*, const ir::Operator*> by_type;
  Table() {
    for (auto family : families)
      for (const ir::Operator* op : family()) list.push_back(op);
    std::sort(list.begin(), list.end(), [](auto* a, auto* b) { return a->name < b->name; });
    for (auto* op : list) {
      GRADUS_CHECK(by_name.emplace(op->name, op).second);
      GRADUS_CHECK(by_type.emplace(op->type, op).second);
    }
  }
};

const Table& table() {
  static const Table t;
  return t;
}

// Operators that were registered. What readers see never changes: a registration makes another one.
struct Added {
  std::vector<const ir::Operator*> list;  // with the table's, by name
  std::unordered_map<std::string_view, const ir::Operator*> by_name;
  std::unordered_map<const void*, const ir::Operator*> by_type;
};
struct AddedVersions {
  std::mutex mutex;
  std::deque<Added> all;  // those before stay for who still looks at them
  std::atomic<const Added*> latest{nullptr};
};
AddedVersions& added_versions() {
  static AddedVersions versions;
  return versions;
}
const Added* added() { return added_versions().latest.load(std::memory_order_acquire); }

bool can_be_written(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || digit(c) || c == '.'; });
}

}  // namespace

std::span<const ir::Operator* const> built_in() { return table().list; }

std::span<const ir::Operator* const> all() {
  const Added* more = added();
  return more ? more->list : table().list;
}

const ir::Operator* find(std::string_view name) {
  auto it = table().by_name.find(name);
  if (it != table().by_name.end()) return it->second;
  const Added* more = added();
  if (!more) return nullptr;
  auto found = more->by_name.find(name);
  return found == more->by_name.end() ? nullptr : found->second;
}

const ir::Operator* find_type(const void* key) {
  auto it = table().by_type.find(key);
  if (it != table().by_type.end()) return it->second;
  const Added* more = added();
  if (!more) return nullptr;
  auto found = more->by_type.find(key);
  return found == more->by_type.end() ? nullptr : found->second;
}

bool is_added(const ir::Operator* op) {
  const Added* more = added();
  if (!more || !op) return false;
  // Anything may be asked for: its name is read only once it is known to be one.
  return std::ranges::any_of(more->by_name, [&](const auto& a) { return a.second == op; });
}

void register_operator(const ir::Operator& op) {
  auto refuse = [&](std::string_view why) {
    throw Error("operator '{}' cannot be registered: {}", printable(op.name), why);
  };
  if (!can_be_written(op.name))
    refuse("a name is made of letters, digits, '_' and '.', and begins with a letter or '_'");
  if (!op.read || !op.write || !op.describe || !op.infer)
    refuse("its record lacks attributes or a type rule; make it by operator_record");
  if (!op.bind && !op.compose) refuse("it has neither a kernel (bind) nor a composition (compose)");
  if (op.traits.structural || op.traits.opaque)
    refuse("structural and opaque operators are not for others to add; register a function");
  AddedVersions& versions = added_versions();
  std::lock_guard guard(versions.mutex);
  if (find(op.name)) refuse("there is one of this name");
  Added next = versions.all.empty() ? Added{table().list, {}, {}} : versions.all.back();
  next.list.insert(std::ranges::lower_bound(next.list, op.name, {},
                                            [](const ir::Operator* o) { return o->name; }),
                   &op);
  next.by_name.emplace(op.name, &op);
  if (op.type) next.by_type.emplace(op.type, &op);
  versions.latest.store(&versions.all.emplace_back(std::move(next)), std::memory_order_release);
}

std::string advice(std::string_view name) {
  // Spellings that other libraries have for a number in an operand's place.
  constexpr std::pair<std::string_view, std::string_view> scalar_spellings[] = {
      {"add_scalar", "add(%x, 2.0)"}, {"rsub_scalar", "sub(2.0, %x)"},
      {"mul_scalar", "mul(%x, 2.0)"}, {"div_scalar", "div(%x, 2.0)"},
      {"pow_scalar", "pow(%x, 2.0)"}, {"scalar_pow", "pow(2.0, %x)"},
  };
  for (auto [spelling, instead] : scalar_spellings)
    if (name == spelling) return fmt::format("; a number may stand as an operand: {}", instead);
  std::vector<std::string_view> names;
  for (const ir::Operator* op : all()) names.push_back(op->name);
  const std::string near = did_you_mean(name, names, {}, 3);
  return near.empty() ? "; `gradus ops` lists the operators" : near;
}

std::optional<ir::Dim> count_in(const ir::Operator& op, const ir::Attributes& attributes) {
  if (!op.data_sized) return std::nullopt;
  for (const ir::NamedLiteral& a : op.write(attributes))
    if (a.name == "count")
      if (const auto* d = std::get_if<ir::Dim>(&a.value.value)) return *d;
  return std::nullopt;
}

bool lacks_count(const ir::Operator& op, const ir::Attributes& attributes,
                 std::span<const ir::OperandType> in) {
  if (!op.data_sized) return false;
  for (size_t i = 0; i < op.operands.size(); ++i)  // what is missing is said by the type rule
    if (!op.operands[i].optional && !op.operands[i].variadic &&
        (i >= in.size() || in[i].kind == ir::OperandType::Kind::none))
      return false;
  return op.data_sized(in) && !count_in(op, attributes);
}

ir::Attributes with_count(const ir::Operator& op, const ir::Attributes& attributes, ir::Dim count) {
  ir::LiteralList list = op.write(attributes);
  std::erase_if(list, [](const ir::NamedLiteral& a) { return a.name == "count"; });
  list.push_back({"count", std::move(count), {}});
  return op.read(list);
}

ir::Attributes counted(const ir::Operator& op, const ir::Attributes& attributes,
                       std::span<const Tensor* const> operands) {
  if (!op.data_sized) return attributes;
  SmallVector<ir::Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> in(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    types[i].dtype = operands[i]->dtype();
    for (int64_t n : operands[i]->shape()) types[i].dims.push_back(n);
    in[i].kind = ir::OperandType::Kind::tensor;
    in[i].type = &types[i];
  }
  if (!lacks_count(op, attributes, in)) return attributes;
  return with_count(op, attributes, op.count(operands));
}

SmallVector<ir::Type, 2> infer_part(const ir::Operator& op, std::span<const ir::OperandType> in,
                                    const ir::Attributes& attributes,
                                    std::vector<ir::DimEquality>* equalities, size_t results) {
  ir::InferCall call{op, in, attributes, {}, equalities, results};
  size_t most = op.operands.size();
  bool variadic = most && op.operands.back().variadic;
  if (in.size() > most && !variadic)
    call.fail("{} operands are given, it takes {}", in.size(), most);
  for (size_t i = 0; i < most; ++i)
    if (!op.operands[i].optional && !op.operands[i].variadic && !call.given(i))
      call.fail("{} is missing", call.name_of_operand(i));
  for (size_t i = 0; i < in.size(); ++i) {
    bool handle = in[i].kind == ir::OperandType::Kind::tensor && !in[i].type->is_tensor();
    if (handle && !op.traits.takes_handle)
      call.fail("{} is a handle, which only `eval` takes", call.name_of_operand(i));
    if (!call.given(i) && variadic && i + 1 >= most && !op.operands.back().optional)
      call.fail("{} is missing", call.name_of_operand(i));
  }
  op.infer(call);
  // A composition's own steps have said it, and so have graphs that are called.
  if (!op.traits.collective && !op.graphs && op.infer != infer_by_composing) place_results(call);
  // Results lie where operands do; those of operators that have none, wherever they are wanted.
  for (const ir::OperandType& o : in)
    if (o.kind == ir::OperandType::Kind::tensor && o.type->is_tensor() &&
        o.type->device != Device())
      for (ir::Type& t : call.out)
        if (t.is_tensor()) t.device = o.type->device;
  // Sizes that overflow are refused here once, for every operator.
  for (const ir::Type& t : call.out) {
    for (const ir::Dim& d : t.dims)
      if (d.is_constant() && d.value() < 0)
        call.fail("the result would have the size {}, which is negative", d.value());
    if (ir::all_constant(t.dims)) {
      Sizes sizes;
      for (const ir::Dim& d : t.dims) sizes.push_back(d.value());
      auto n = checked_numel(sizes);
      int64_t bytes;
      if (!n || __builtin_mul_overflow(*n, static_cast<int64_t>(size_of(t.dtype)), &bytes))
        call.fail("the result {} has more elements than can be counted", to_string(t));
    }
  }
  return std::move(call.out);
}

namespace {

// "; 'x' is f64[2, 3], 'index' is i64[3]", of those that the message does not show. Functions and
// structural operators describe theirs.
std::string operands_left_out(const ir::Operator& op, std::span<const ir::OperandType> in,
                              std::string_view message) {
  if (op.traits.opaque || op.traits.structural) return "";
  auto says = [&](const std::string& text) { return message.find(text) != std::string_view::npos; };
  std::string list;
  const bool variadic = !op.operands.empty() && op.operands.back().variadic;
  const size_t shown = std::min<size_t>(in.size(), variadic ? 8 : op.operands.size());
  for (size_t i = 0; i < shown; ++i) {
    if (in[i].kind != ir::OperandType::Kind::tensor || !in[i].type->is_tensor()) continue;
    std::string name = fmt::format("'{}'", op.operand(i).name);
    // A single operand need not be named.
    if ((in.size() == 1 || says(name)) && says(to_string(in[i].type->dims))) continue;
    list += fmt::format("{}{} is {}", list.empty() ? "; " : ", ", name, to_string(*in[i].type));
  }
  return list;
}

}  // namespace

SmallVector<ir::Type, 2> infer(const ir::Operator& op, std::span<const ir::OperandType> in,
                               const ir::Attributes& attributes,
                               std::vector<ir::DimEquality>* equalities, size_t results) {
  try {
    return infer_part(op, in, attributes, equalities, results);
  } catch (const Error& e) {
    std::string more = operands_left_out(op, in, e.bare());
    if (more.empty()) throw;
    throw Error(e.bare() + more);
  }
}

SmallVector<ir::Type, 2> infer(const ir::Graph& graph, const ir::Node& node,
                               std::vector<ir::DimEquality>* equalities, size_t results) {
  SmallVector<ir::OperandType, 4> in;
  for (const ir::Operand& o : node.operands) in.push_back(graph.type_of(o));
  if (results == ir::any_results && !node.results.empty()) results = node.results.size();
  return infer(*node.op, in, node.attributes, equalities, results);
}

}  // namespace gradus::ops
