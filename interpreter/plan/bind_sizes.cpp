#include "interpreter/plan/bind_sizes.h"

#include <algorithm>
#include <map>

#include "gradus/communicator.h"

namespace gradus::interpreter {

namespace {

class SizeBinder {
 public:
  SizeBinder(const Code& code, size_t stage, std::span<const Tensor> inputs, Device place,
             DimensionSizes& sizes)
      : code_(code), stage_(stage), inputs_(inputs), place_(place), sizes_(sizes) {}

  void run() {
    for (size_t i = 0; i < inputs_.size(); ++i) check_kind(i);
    for (size_t i = 0; i < inputs_.size(); ++i) bind_names(i);
    while (solve_one()) {
    }
    for (size_t i = 0; i < inputs_.size(); ++i) check_sizes(i);
  }

 private:
  [[noreturn]] void fail(size_t i, const std::string& message) const {
    throw Error("stage {}: input '{}' {}", stage_, code_.input_name(stage_, i), message);
  }

  void check_kind(size_t i) const {
    const ir::Type& want = code_.input_type(stage_, i);
    const Tensor& got = inputs_[i];
    if (!got.defined()) {
      if (stage_ == 0 || !want.is_floating())
        fail(i,
             fmt::format("is undefined; only cotangents may be, it must be {}", to_string(want)));
      return;
    }
    if (got.dtype() != want.dtype)
      fail(i, fmt::format("must be {}, it is {}; convert it to {}", to_string(want), describe(got),
                          name_of(want.dtype)));
    if (want.device != Device() && want.device != place_)
      fail(i, fmt::format("must lie on {}, and this state runs on {}; have its context use that "
                          "device (gradus run --device)",
                          gradus::to_string(want.device), gradus::to_string(place_)));
    if (got.device() != place_)
      fail(i, fmt::format("must lie on {}, it lies on {}", gradus::to_string(place_),
                          gradus::to_string(got.device())));
    if (got.rank() != want.rank())
      fail(i, fmt::format("must be {} (rank {}), it is {}", to_string(want), want.rank(),
                          describe(got)));
  }

  void bind_names(size_t i) {
    if (!inputs_[i].defined()) return;
    const ir::Type& type = code_.input_type(stage_, i);
    for (size_t d = 0; d < type.dims.size(); ++d) {
      std::string_view name = type.dims[d].symbol_name();
      if (name.empty()) continue;
      auto& slot = sizes_[index(name)];
      if (!slot) slot = inputs_[i].shape()[d];
    }
  }

  // Finds a size that follows from an expression with one unknown name: N from f32[2*N].
  bool solve_one() {
    SizesByName known(code_, sizes_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].defined()) continue;
      const ir::Type& type = code_.input_type(stage_, i);
      for (size_t d = 0; d < type.dims.size(); ++d) {
        std::string unknown;
        bool one = true;
        type.dims[d].for_each_symbol([&](std::string_view name) {
          if (sizes_[index(name)] || unknown == name) return;
          one = unknown.empty();
          unknown = name;
        });
        if (unknown.empty() || !one) continue;
        auto linear = type.dims[d].linear_in(unknown);
        if (!linear) continue;
        int64_t rest = inputs_[i].shape()[d] - linear->rest.evaluate(known);
        if (rest % linear->coefficient != 0 || rest / linear->coefficient < 0)
          fail(i, fmt::format("has size {} in dimension {}, which is not {} for any {}",
                              inputs_[i].shape()[d], d, type.dims[d].to_string(), unknown));
        sizes_[index(unknown)] = rest / linear->coefficient;
        return true;
      }
    }
    return false;
  }

  void check_sizes(size_t i) const {
    if (!inputs_[i].defined()) return;
    SizesByName known(code_, sizes_);
    const ir::Type& type = code_.input_type(stage_, i);
    for (size_t d = 0; d < type.dims.size(); ++d) {
      int64_t want = type.dims[d].evaluate(known), got = inputs_[i].shape()[d];
      if (want == got) continue;
      std::string expected = type.dims[d].is_constant()
                                 ? fmt::format("{}", want)
                                 : fmt::format("{} = {}", type.dims[d].to_string(), want);
      fail(i, fmt::format("must be {}: dimension {} must be {}, it is {} (it is {})",
                          to_string(type), d, expected, got, describe(inputs_[i])));
    }
  }

  size_t index(std::string_view name) const { return *code_.dimension_index(name); }

  const Code& code_;
  size_t stage_;
  std::span<const Tensor> inputs_;
  const Device place_;
  DimensionSizes& sizes_;
};

}  // namespace

namespace {

// "2 to 8", "2 or more"
std::string sizes_in(const ir::SizeRange& r) {
  return r.most ? fmt::format("{} to {}", r.least, *r.most) : fmt::format("{} or more", r.least);
}

void check_ranges(const Code& code, size_t stage, const DimensionSizes& sizes) {
  const SizesByName known(code, sizes);
  for (const ir::SizeRange& r : code.graph().ranges) {
    const auto n = known.find(r.name);
    if (!n || (*n >= r.least && *n <= r.most.value_or(*n))) continue;
    throw Error("stage {}: the size {} is {}, and the program takes {}; {}", stage, r.name, *n,
                sizes_in(r),
                r.group.empty() ? "give inputs of such a size"
                                : fmt::format("run it on as many ranks of group '{}'", r.group));
  }
}

std::string bounds_of(const ir::SizeCondition& c) {
  if (c.most == c.least) return fmt::format("to be {}", c.least);
  if (!c.most) return fmt::format("to be at least {}", c.least);
  return fmt::format("to be {} to {}", c.least, *c.most);
}

void check_conditions(const Code& code, size_t stage, const DimensionSizes& sizes) {
  const SizesByName known(code, sizes);
  for (const ir::SizeCondition& c : code.graph().conditions) {
    std::map<std::string_view, std::optional<int64_t>> found;
    c.value.for_each_symbol([&](std::string_view name) { found[name] = known.find(name); });
    if (std::ranges::any_of(found, [](const auto& size) { return !size.second; })) continue;
    const int64_t value = c.value.evaluate(known);
    if (value >= c.least && value <= c.most.value_or(value)) continue;
    std::string listed;
    for (const auto& [name, size] : found)
      listed += fmt::format("{}{} = {}", listed.empty() ? "" : ", ", name, *size);
    throw Error(
        "stage {}: the program requires {}, which does not hold for {}; give inputs of "
        "other sizes, or a program that is made for these",
        stage, c.words.empty() ? fmt::format("{} {}", c.value.to_string(), bounds_of(c)) : c.words,
        listed);
  }
}

}  // namespace

std::vector<int64_t> rank_counts(const Code& code, Context* context) {
  std::vector<int64_t> sizes;
  if (!code.rank_program()) return sizes;
  for (const ir::SizeRange& r : code.graph().ranges)
    if (!r.group.empty())
      sizes.push_back(context ? rank_groups(*context).find(r.group)->size() : 1);
  for (size_t s = 0; s < code.stages(); ++s)
    for (const Instruction& i : code.stage(s).instructions)
      for (const auto& body : i.bodies)
        for (const int64_t n : rank_counts(*body, context)) sizes.push_back(n);
  return sizes;
}

void bind_sizes(const Code& code, size_t stage, std::span<const Tensor> inputs, Device place,
                std::span<const int64_t> ranks, DimensionSizes& sizes) {
  sizes.resize(code.dimensions().size());
  for (const ir::SizeRange& r : code.graph().ranges) {
    if (r.group.empty()) continue;
    if (const auto index = code.dimension_index(r.name)) sizes[*index] = ranks.front();
    ranks = ranks.subspan(1);
  }
  SizeBinder(code, stage, inputs, place, sizes).run();
  check_ranges(code, stage, sizes);
  check_conditions(code, stage, sizes);
}

std::optional<int64_t> SizesByName::find(std::string_view symbol) const {
  auto index = code_.dimension_index(symbol);
  return index ? sizes_[*index] : std::nullopt;
}

Sizes sizes_of(const ir::Type& type, const ir::DimEnvironment& known) {
  Sizes sizes;
  for (const ir::Dim& d : type.dims) sizes.push_back(d.evaluate(known));
  return sizes;
}

Tensor stand_in(const ir::Type& type, const ir::DimEnvironment& known, Device device) {
  Sizes shape = sizes_of(type, known);
  const auto count = checked_numel(shape);
  constexpr int64_t most = int64_t{1} << 46;
  if (!count || *count > most) throw Error("{} has too many elements", to_string(type));
  alignas(64) static std::byte place[64];
  const size_t bytes = static_cast<size_t>(*count) * size_of(type.dtype);
  return Tensor(make_ref<Storage>(place, bytes, device, [] {}), Layout(type.dtype, shape));
}

}  // namespace gradus::interpreter
