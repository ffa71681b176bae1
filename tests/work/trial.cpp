#include "tests/work/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gradus/convert.h"
#include "kernels/make.h"
#include "tests/reference/work.h"

namespace gradus::work::test {

namespace {

constexpr size_t guard = 128;  // bytes on either side

// Work on one worker and on several, by one rank.
Context& context_of(int workers) {
  static Context one({.workers = 1}), four({.workers = 4});
  static const bool bound = [] {
    for (Context* c : {&one, &four}) rank_groups(*c).bind("alone", single_rank());
    return true;
  }();
  GRADUS_CHECK(bound);
  return workers == 1 ? one : four;
}

double element_of(DType dtype, const std::byte* at) {
  return visit_dtype(dtype, [&](auto tag) {
    typename decltype(tag)::type x;
    std::memcpy(&x, at, sizeof x);
    return convert<double>(x);
  });
}

// Runs the kernel in scratch memory that nobody has written, with a guard behind it.
void run_kernel(const Kernel& kernel, std::byte* const* args, int workers) {
  if (!kernel.run) return;
  constexpr std::align_val_t alignment{64};
  const size_t bytes = kernel.scratch_bytes + guard;
  auto free = [](void* p) { ::operator delete(p, alignment); };
  std::unique_ptr<void, decltype(free)> memory(::operator new(bytes, alignment), free);
  auto* scratch = static_cast<std::byte*>(memory.get());
  std::memset(scratch, 0xff, bytes);
  KernelScope scope{context_of(workers).workers(), scratch, &context_of(workers)};
  kernel.run(kernel.parameters.get(), args, scope);
  for (size_t i = kernel.scratch_bytes; i < bytes; ++i)
    if (scratch[i] != std::byte{0xff}) throw InternalError("it writes behind its scratch memory");
}

}  // namespace

int64_t Random::between(int64_t first, int64_t last) {
  return first + static_cast<int64_t>(engine_() % static_cast<uint64_t>(last - first + 1));
}

double Random::real(double low, double high) {
  return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
}

Sizes Random::nonempty_shape(int least, int most, int64_t room) {
  Sizes shape(static_cast<size_t>(between(least, most)));
  for (int64_t& n : shape) {
    n = chance(0.3) ? between(1, room)
                    : pick<int64_t>({1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 65});
    n = std::min(n, room);
    room /= n;
  }
  std::shuffle(shape.begin(), shape.end(), engine_);
  return shape;
}

Sizes Random::shape(int least, int most, int64_t room) {
  Sizes s = nonempty_shape(least, most, room);
  if (!s.empty() && chance(0.06))
    s[static_cast<size_t>(between(0, static_cast<int64_t>(s.size()) - 1))] = 0;
  return s;
}

Layout Random::layout(DType dtype, const Sizes& shape, bool overlaps) {
  Sizes order(shape.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::reverse(order.begin(), order.end());  // the last one innermost
  if (chance(0.5)) order = permutation(static_cast<int64_t>(shape.size()));
  const bool gaps = chance(0.5), zeros = overlaps && chance(0.4);
  Sizes strides(shape.size());
  int64_t step = gaps && chance(0.3) ? between(2, 3) : 1;
  for (int64_t d : order) {
    if (zeros && chance(0.4)) continue;
    strides[d] = step;
    step = step * std::max<int64_t>(shape[d], 1) + (gaps && chance(0.5) ? between(1, 5) : 0);
  }
  return Layout(dtype, shape, strides);
}

Sizes Random::permutation(int64_t n) {
  Sizes list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), int64_t{0});
  std::shuffle(list.begin(), list.end(), engine_);
  return list;
}

double Random::number(Values values) {
  const double sign = chance(0.5) ? -1 : 1;
  switch (values) {
    case Values::special:
      if (chance(0.2))
        return sign * pick({0.0, double{INFINITY}, double{NAN}, 1.0, 1e-310, 1e-40, 7e4, 1e39});
      [[fallthrough]];
    case Values::plain:
      return sign * std::ldexp(real(0.5, 1), static_cast<int>(between(-6, 6)));
    case Values::few:
      return sign * pick({0.0, 1.0, 1.5});
    case Values::unit:
      break;
  }
  return sign * real(0, 1);
}

int64_t Random::integer(Values values) {
  switch (values) {
    case Values::plain:
      return static_cast<int64_t>(engine_());
    case Values::special:
      return chance(0.2) ? pick({INT64_MIN, INT64_MAX, int64_t{INT32_MIN}, int64_t{0}})
                         : between(-200, 200);
    case Values::few:
      return between(-1, 1);
    case Values::unit:
      break;
  }
  return between(-3, 3);
}

int Trial::operand(DType dtype, int64_t elements, Values values) {
  const int number = result(dtype, elements);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < elements; ++i) {
      T x;
      if constexpr (std::is_same_v<T, bool>)
        x = random_.chance(0.5);
      else if constexpr (std::is_integral_v<T>)
        x = convert<T>(random_.integer(values));
      else
        x = convert<T>(random_.number(values));
      std::memcpy(arguments_.back().element(i), &x, sizeof x);
    }
  });
  return number;
}

int Trial::operand(const Layout& layout, const std::byte* elements) {
  const int64_t extent = layout.numel() == 0 ? 0 : layout.extent();
  const int number = result(layout.dtype, extent);
  if (extent > 0)
    std::memcpy(arguments_.back().element(0), elements,
                static_cast<size_t>(extent) * size_of(layout.dtype));
  return number;
}

int Trial::result(DType dtype, int64_t elements) {
  const size_t size = size_of(dtype);
  Argument a{dtype, elements, guard + static_cast<size_t>(random_.between(0, 9)) * size, {}};
  a.memory.resize(a.first + static_cast<size_t>(elements) * size + guard);
  // No NaN, and no other number that is equal to itself in other bytes.
  for (std::byte& b : a.memory) b = static_cast<std::byte>(random_.between(1, 0x3f));
  if (dtype == DType::boolean)
    for (int64_t i = 0; i < elements; ++i) *a.element(i) = std::byte{1};
  arguments_.push_back(std::move(a));
  return static_cast<int>(arguments_.size()) - 1;
}

void Trial::set(int argument, int64_t at, double value) {
  Argument& a = arguments_[static_cast<size_t>(argument)];
  visit_dtype(a.dtype, [&](auto tag) {
    const auto x = convert<typename decltype(tag)::type>(value);
    std::memcpy(a.element(at), &x, sizeof x);
  });
}

void Trial::set(int argument, int64_t at, int64_t value) {
  Argument& a = arguments_[static_cast<size_t>(argument)];
  visit_dtype(a.dtype, [&](auto tag) {
    const auto x = convert<typename decltype(tag)::type>(value);
    std::memcpy(a.element(at), &x, sizeof x);
  });
}

double Trial::get(int argument, int64_t at) const {
  const Argument& a = arguments_[static_cast<size_t>(argument)];
  return element_of(a.dtype, a.element(at));
}

Trial::Outcome Trial::run(const Way& way) const {
  Outcome outcome{arguments_, {}};
  std::vector<std::byte*> args;
  for (Argument& a : outcome.arguments) args.push_back(a.element(0));
  try {
    way(args.data());
  } catch (const Error& e) {
    outcome.error = e.what();
  } catch (const InternalError& e) {
    outcome.error = e.what();
  }
  return outcome;
}

std::string Trial::compare(const Outcome& outcome, const Outcome& evaluated) const {
  if (outcome.error != evaluated.error)
    return fmt::format("it says '{}', the evaluator '{}'", outcome.error, evaluated.error);
  for (size_t k = 0; k < arguments_.size(); ++k) {
    const Argument &got = outcome.arguments[k], &expected = evaluated.arguments[k];
    const size_t size = size_of(got.dtype), last = got.first + got.elements * size;
    for (size_t i = 0; i < got.memory.size(); ++i)
      if ((i < got.first || i >= last) && got.memory[i] != arguments_[k].memory[i])
        return fmt::format("it writes outside of argument {}", k);
    if (!outcome.error.empty()) continue;
    for (int64_t i = 0; i < got.elements; ++i) {
      if (std::memcmp(got.element(i), expected.element(i), size) == 0) continue;
      const double a = element_of(got.dtype, got.element(i));
      const double b = element_of(got.dtype, expected.element(i));
      if (a != a && b != b) continue;
      const double most = slack ? slack(static_cast<int>(k), i, b) : 0;
      if (slack && std::fabs(a - b) <= most) continue;
      return fmt::format("element {} of argument {} is {}, {} by the evaluator, which allows {}", i,
                         k, a, b, most);
    }
  }
  return "";
}

std::string Trial::check() {
  evaluated_ = run([&](std::byte* const* args) { reference::evaluate(work, args); });
  std::string fault = compare(evaluated_, evaluated_);
  if (!fault.empty()) return "the evaluator: " + fault;
  if (std::holds_alternative<Loops>(work)) return "";  // compilers make its code: tests/fusion
  for (int workers : {1, 4}) {
    auto way = [&](std::byte* const* args) { run_kernel(kernels::make(work), args, workers); };
    fault = compare(run(way), evaluated_);
    if (!fault.empty()) return fmt::format("the kernel with {} workers: {}", workers, fault);
  }
  return "";
}

const std::byte* Trial::evaluated(int argument) {
  return evaluated_.arguments[static_cast<size_t>(argument)].element(0);
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0;
  }
}

}  // namespace gradus::work::test
