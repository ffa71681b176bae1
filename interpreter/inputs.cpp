#include "gradus/inputs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gradus/messages.h"
#include "gradus/scalar/math.h"

namespace gradus {

namespace {

// SplitMix64's output function (Steele, Lea, Flood 2014): a bijection that scatters its argument.
uint64_t scatter(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Random words by index.
class Words {
 public:
  Words(std::string_view name, uint64_t seed) : key_(scatter(seed + 0x9e3779b97f4a7c15u)) {
    for (char c : name) key_ = scatter(key_ ^ static_cast<unsigned char>(c));
  }
  uint64_t operator()(uint64_t index) const {
    return scatter(key_ + 0x9e3779b97f4a7c15u * (index + 1));
  }

 private:
  uint64_t key_;
};

// Box and Muller's transform, with functions that give the same bits everywhere.
double normal(const Words& words, uint64_t index) {
  using F = scalar::Num<double>;
  F u{(static_cast<double>(words(2 * index) >> 11) + 1) * 0x1p-53};  // (0, 1]
  F angle{static_cast<double>(words(2 * index + 1) >> 11) * 0x1p-53 * 6.283185307179586};
  F radius = sqrt(-2.0 * log(u));
  return (radius * cos(angle)).value;
}

template <class Element>
Tensor make_elements(DType dtype, std::span<const int64_t> shape, Context& context,
                     Element element) {
  Tensor t = Tensor::empty(dtype, shape, context);
  std::byte* data = t.mutable_data();
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(data);
    for (int64_t i = 0, n = t.numel(); i < n; ++i)
      out[i] = static_cast<T>(element(static_cast<uint64_t>(i)));
  });
  return t;
}

// The sizes known to a state, and those added to them.
class KnownSizes final : public ir::DimEnvironment {
 public:
  explicit KnownSizes(const State& state) : state_(state) {}
  std::optional<int64_t> find(std::string_view symbol) const override {
    if (auto known = state_.dimension(symbol)) return known;
    auto it = added_.find(symbol);
    return it == added_.end() ? std::nullopt : std::optional<int64_t>(it->second);
  }
  void add(std::string_view symbol, int64_t size) { added_.emplace(symbol, size); }

  // The only name of `d` without a size, if there is exactly one; empty otherwise.
  std::string open_symbol(const ir::Dim& d) const {
    std::set<std::string, std::less<>> open;
    d.for_each_symbol([&](std::string_view s) {
      if (!find(s)) open.emplace(s);
    });
    return open.size() == 1 ? *open.begin() : std::string();
  }
  // Any name of `d` without a size; empty if all are known.
  std::string unknown_symbol(const ir::Dim& d) const {
    std::string unknown;
    d.for_each_symbol([&](std::string_view s) {
      if (unknown.empty() && !find(s)) unknown = s;
    });
    return unknown;
  }
  // Learns a name from d == size, where that settles one. What contradicts is left to the state.
  bool learn(const ir::Dim& d, int64_t size) {
    std::string symbol = open_symbol(d);
    if (symbol.empty()) return false;
    ir::Dim rest_known = d.substitute([&](std::string_view s) -> std::optional<ir::Dim> {
      if (auto n = find(s)) return ir::Dim(*n);
      return std::nullopt;
    });
    auto linear = rest_known.linear_in(symbol);
    if (!linear || !linear->rest.is_constant() || linear->coefficient == 0) return false;
    int64_t rest;
    if (__builtin_sub_overflow(size, linear->rest.value(), &rest)) return false;
    if (rest % linear->coefficient != 0 || rest / linear->coefficient < 0) return false;
    add(symbol, rest / linear->coefficient);
    return true;
  }

 private:
  const State& state_;
  DimSizes added_;
};

void learn_sizes(const State& state, const std::vector<Tensor>& inputs, KnownSizes& sizes) {
  for (bool learned = true; learned;) {
    learned = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::Type& type = state.input_type(i);
      if (!inputs[i].defined() || inputs[i].rank() != type.rank()) continue;
      for (int d = 0; d < type.rank(); ++d)
        learned |= sizes.learn(type.dims[static_cast<size_t>(d)],
                               inputs[i].shape()[static_cast<size_t>(d)]);
    }
  }
}

Sizes shape_of(const ir::Type& type, std::string_view input, const KnownSizes& sizes) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) {
    if (std::string unknown = sizes.unknown_symbol(d); !unknown.empty())
      throw Error(
          "the size of dimension '{}' of input '{}' ({}) is not known; set it "
          "(--set {}=SIZE) or give the input",
          unknown, input, to_string(type), unknown);
    shape.push_back(d.evaluate(sizes));
    if (shape.back() < 0)
      throw Error("input '{}' ({}) would have the size {}, which is negative", input,
                  to_string(type), shape.back());
  }
  return shape;
}

bool same_doubles(const Tensor& a, const Tensor& b) {
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  return std::equal(x.begin(), x.end(), y.begin(),
                    [](double u, double v) { return u == v || (u != u && v != v); });
}

bool same_signs(const Tensor& a, const Tensor& b) {
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  return std::equal(x.begin(), x.end(), y.begin(),
                    [](double u, double v) { return (u < 0) == (v < 0); });
}

// Whether converting changed no value. All dtypes but i64 and u64 are exact as doubles.
bool same_values(const Tensor& from, const Tensor& to) {
  const auto wide = [](const Tensor& t) {
    return is_integral(t.dtype()) && size_of(t.dtype()) == 8;
  };
  if (!wide(from) && !wide(to)) return same_doubles(from, to);
  Tensor back = to.to(from.dtype());
  if (!is_floating(from.dtype()) && !is_floating(to.dtype()))
    return bitwise_equal(back, from) && same_signs(from, to);
  // 2^63 saturates to an i64 that comes back as 2^63; a u64 has the double of that.
  const bool floats = is_floating(from.dtype());
  const double above = (floats ? to : from).dtype() == DType::u64 ? 0x1p64 : 0x1p63;
  std::vector<double> values = (floats ? from : to).to_doubles();
  return std::none_of(values.begin(), values.end(), [&](double v) { return v >= above; }) &&
         (floats ? same_doubles(back, from) : bitwise_equal(back, from));
}

[[noreturn]] void throw_missing(const State& state, const std::vector<size_t>& missing) {
  std::string list;
  for (size_t i : missing)
    list += fmt::format("{}{}: {}", list.empty() ? "" : ", ", state.input_name(i),
                        to_string(state.input_type(i)));
  throw Error(
      "stage {} lacks {} input{}: {}; give {} by name in a file (--inputs, --weights), or "
      "fill what is missing at random (--random)",
      state.next_stage(), missing.size(), missing.size() == 1 ? "" : "s", list,
      missing.size() == 1 ? "it" : "them");
}

}  // namespace

Tensor random_tensor(DType dtype, std::span<const int64_t> shape, std::string_view name,
                     uint64_t seed, Context& context) {
  return make_elements(dtype, shape, context, [&, words = Words(name, seed)](uint64_t index) {
    return is_floating(dtype) ? normal(words, index) : static_cast<double>(words(index) >> 63);
  });
}

Tensor uniform_tensor(DType dtype, std::span<const int64_t> shape, double low, double high,
                      std::string_view name, uint64_t seed, Context& context) {
  return make_elements(dtype, shape, context, [&, words = Words(name, seed)](uint64_t index) {
    double unit = static_cast<double>(words(index) >> 11) * 0x1p-53;
    if (dtype == DType::boolean) return unit >= 0.5 ? 1.0 : 0.0;
    if (is_floating(dtype)) return low + unit * (high - low);
    double first = std::ceil(low), count = std::ceil(high) - first;
    return first + std::floor(unit * count);
  });
}

InputSources random_sources(uint64_t seed, std::shared_ptr<Context> context) {
  InputSources sources;
  sources.fill = [seed, context = std::move(context)](std::string_view name, DType dtype,
                                                      std::span<const int64_t> shape) {
    return random_tensor(dtype, shape, name, seed, *context);
  };
  return sources;
}

Tensor convert_exactly(const Tensor& tensor, DType dtype, std::string_view what) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor converted = tensor.to(dtype);
  if (same_values(tensor, converted)) return converted;
  throw Error(
      "{} is {}, the program says {}, and some of its values would change; convert it "
      "yourself (NumPy: x.astype), or change the program",
      what, name_of(tensor.dtype()), name_of(dtype));
}

std::vector<Tensor> find_inputs(const State& state, const InputSources& sources) {
  size_t n = state.code()->inputs(state.next_stage());
  std::vector<Tensor> inputs(n);
  std::vector<size_t> missing;
  for (size_t i = 0; i < n; ++i) {
    auto found = sources.find ? sources.find(state.input_name(i)) : std::nullopt;
    if (!found) {
      missing.push_back(i);
      continue;
    }
    if (found->tensor.defined())
      inputs[i] = convert_exactly(found->tensor, state.input_type(i).dtype,
                                  fmt::format("input '{}' of stage {} in {}", state.input_name(i),
                                              state.next_stage(), printable(found->origin)));
  }
  if (!missing.empty() && !sources.fill) throw_missing(state, missing);
  KnownSizes sizes(state);
  learn_sizes(state, inputs, sizes);
  for (const auto& [name, size] : sources.sizes) {
    auto known = sizes.find(name);
    if (known && *known != size)
      throw Error("dimension '{}' is set to {}, but the inputs make it {}", name, size, *known);
    if (!known) sizes.add(name, size);
  }
  learn_sizes(state, inputs, sizes);
  for (size_t i : missing) {
    const ir::Type& type = state.input_type(i);
    for (const ir::Dim& d : type.dims)
      for (std::string open; sources.guess && !(open = sizes.unknown_symbol(d)).empty();)
        sizes.add(open, sources.guess(open));
    const std::string& name = state.input_name(i);
    try {
      inputs[i] = sources.fill(name, type.dtype, shape_of(type, name, sizes));
    } catch (const ResourceError& e) {
      throw ResourceError("input '{}' of stage {}: {}", name, state.next_stage(), e.message());
    }
  }
  return inputs;
}

}  // namespace gradus
