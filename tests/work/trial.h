// Random instances of work with their arguments. The evaluator and the kernels do each, and have to
// leave the same bytes.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "work/work.h"

namespace gradus::work::test {

// What elements are drawn from.
enum class Values : uint8_t {
  plain,    // floats of many magnitudes, integers of all bits
  special,  // infinities, NaN and zeros of both signs among them
  few,      // a handful of values, so that many are equal
  unit,     // floats in (-1, 1), integers from -3 to 3
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t first, int64_t last);  // last included
  bool chance(double p) { return between(0, 999'999) < p * 1e6; }
  double real(double low, double high);
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
  }
  DType dtype() { return static_cast<DType>(between(0, dtype_count - 1)); }
  DType floating() { return pick({DType::f64, DType::f32, DType::f16, DType::bf16}); }
  Values values() { return pick({Values::plain, Values::special, Values::few, Values::unit}); }
  // From `least` dimensions to `most`, of about `room` elements at most; few shapes are empty.
  Sizes shape(int least, int most, int64_t room);
  Sizes nonempty_shape(int least, int most, int64_t room);
  // Few of these are large.
  Sizes shape(int least, int most) { return shape(least, most, usual_room()); }
  Sizes nonempty_shape(int least, int most) { return nonempty_shape(least, most, usual_room()); }
  // Dimensions in any order and with gaps between; with `overlaps`, some strides are 0.
  Layout layout(DType dtype, const Sizes& shape, bool overlaps = true);
  // The numbers below n.
  Sizes permutation(int64_t n);
  double number(Values values);
  int64_t integer(Values values);

 private:
  int64_t usual_room() { return chance(0.04) ? 150'000 : 1500; }
  std::mt19937_64 engine_;
};

// An argument's memory: between guards, so that what is written outside of it is noticed.
struct Argument {
  DType dtype;
  int64_t elements;
  size_t first;  // byte
  std::vector<std::byte> memory;
  std::byte* element(int64_t at) {
    return memory.data() + first + static_cast<size_t>(at) * size_of(dtype);
  }
  const std::byte* element(int64_t at) const { return const_cast<Argument*>(this)->element(at); }
};

class Trial {
 public:
  explicit Trial(Random& random) : random_(random) {}

  // Appends an argument; returns its number. A result's elements are bytes that mean nothing.
  int operand(const Layout& layout, Values values = Values::plain) {
    return operand(layout.dtype, layout.numel() == 0 ? 0 : layout.extent(), values);
  }
  int operand(DType dtype, int64_t elements, Values values = Values::plain);
  // One that holds these elements.
  int operand(const Layout& layout, const std::byte* elements);
  int result(DType dtype, int64_t elements);
  // Sets an element of an operand.
  void set(int argument, int64_t at, double value);
  void set(int argument, int64_t at, int64_t value);
  double get(int argument, int64_t at) const;

  Work work = Move{};
  // How far element `at` of an argument may be from the evaluator's; null: it has its bits.
  std::function<double(int argument, int64_t at, double evaluated)> slack;

  // What is wrong with it; empty where nothing is.
  std::string check();
  // The first element of an argument as the evaluator left it.
  const std::byte* evaluated(int argument);

 private:
  struct Outcome {
    std::vector<Argument> arguments;
    std::string error;
  };
  using Way = std::function<void(std::byte* const* args)>;
  Outcome run(const Way& way) const;
  std::string compare(const Outcome& outcome, const Outcome& evaluated) const;

  Random& random_;
  std::vector<Argument> arguments_;
  Outcome evaluated_;
};

// A trial of one kind, defined for each: what it draws is what the kind allows.
template <class W>
void draw(Random& random, Trial& trial);

// A step of a floating dtype's last place, relative to its element.
double epsilon_of(DType dtype);

}  // namespace gradus::work::test
