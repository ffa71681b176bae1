// The same bits from every way to run a scalar body: a loop the compiler vectorised for AVX2 and
// FMA, one element at a time with the same instructions, a loop for plain x86-64 (SSE2, fma by the
// C library). SPEC F6
// At -O2 g++ leaves loops of unknown length alone, and there would be nothing to compare.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic")
#endif

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/ops/scalar_test_functions.h"

namespace gradus::scalar::test {
namespace {

#if defined(__x86_64__)
#define GRADUS_TEST_V3 __attribute__((target("arch=x86-64-v3"), noinline))
bool has_v3() { return __builtin_cpu_supports("x86-64-v3"); }
#else
#define GRADUS_TEST_V3 __attribute__((noinline))
bool has_v3() { return true; }
#endif

template <class F, class T>
__attribute__((noinline)) void loop_baseline(T* __restrict out, const T* __restrict a,
                                             const T* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = F::apply(Num<T>{a[i]}, Num<T>{b[i]}).value;
}
template <class F, class T>
GRADUS_TEST_V3 void loop_v3(T* __restrict out, const T* __restrict a, const T* __restrict b,
                            std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = F::apply(Num<T>{a[i]}, Num<T>{b[i]}).value;
}
template <class F, class T>
GRADUS_TEST_V3 T single_v3(T a, T b) {
  return F::apply(Num<T>{a}, Num<T>{b}).value;
}

template <class T>
void expect_same(const char* name, const char* way, const std::vector<T>& a,
                 const std::vector<T>& b, const std::vector<T>& want, const std::vector<T>& got) {
  int shown = 0;
  for (std::size_t i = 0; i < a.size() && shown < 5; ++i) {
    bool same =
        std::isnan(want[i]) ? std::isnan(got[i]) : std::memcmp(&want[i], &got[i], sizeof(T)) == 0;
    if (same) continue;
    ++shown;
    ADD_FAILURE() << name << (sizeof(T) == 4 ? " f32 " : " f64 ") << way << std::hexfloat << " at "
                  << a[i] << ", " << b[i] << ": " << got[i] << ", one at a time " << want[i];
  }
}

// Random bit patterns reach what no distribution does.
template <class T>
T random_pattern(std::mt19937_64& generator) {
  uint64_t word = generator();
  T x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

template <class F, class T>
void check(const char* name) {
  if (!has_v3()) GTEST_SKIP() << "needs x86-64-v3";
  std::vector<T> a = inputs<T>(120), b;
  std::mt19937_64 generator(99);
  for (int i = 0; i < 700; ++i) a.push_back(random_pattern<T>(generator));
  if (a.size() % 2 == 0) a.push_back(T(0.3));  // an odd length leaves a remainder loop to run
  b = a;
  std::shuffle(b.begin(), b.end(), generator);
  const std::size_t n = a.size();
  std::vector<T> one(n), wide(n), plain(n);
  for (std::size_t i = 0; i < n; ++i) one[i] = single_v3<F, T>(a[i], b[i]);
  loop_v3<F, T>(wide.data(), a.data(), b.data(), n);
  loop_baseline<F, T>(plain.data(), a.data(), b.data(), n);
  expect_same(name, "AVX2 loop", a, b, one, wide);
  expect_same(name, "plain loop", a, b, one, plain);
}

#define GRADUS_BITS_TEST(name, call)         \
  struct name##_body {                       \
    template <class S>                       \
    GRADUS_INLINE static S apply(S x, S y) { \
      (void)y;                               \
      return call;                           \
    }                                        \
  };                                         \
  TEST(ScalarBits, name) {                   \
    check<name##_body, float>(#name);        \
    check<name##_body, double>(#name);       \
  }
#define GRADUS_BITS_TEST_1(name, ...) GRADUS_BITS_TEST(name, name(x))
#define GRADUS_BITS_TEST_2(name, ...) GRADUS_BITS_TEST(name, name(x, y))
GRADUS_SCALAR_UNARY_TESTS(GRADUS_BITS_TEST_1)
GRADUS_SCALAR_BINARY_TESTS(GRADUS_BITS_TEST_2)
GRADUS_BITS_TEST(add, x + y)
GRADUS_BITS_TEST(subtract, x - y)
GRADUS_BITS_TEST(multiply, x* y)
GRADUS_BITS_TEST(divide, x / y)
GRADUS_BITS_TEST(multiply_add, x* y + x)  // must not be contracted
GRADUS_BITS_TEST(fused, fma(x, y, x))
GRADUS_BITS_TEST(maximum, maximum(x, y))
GRADUS_BITS_TEST(minimum, minimum(x, y))
GRADUS_BITS_TEST(fmax, fmax(x, y))
GRADUS_BITS_TEST(fmin, fmin(x, y))
GRADUS_BITS_TEST(copysign, copysign(x, y))
GRADUS_BITS_TEST(small_integers, to_float(to_int(select(abs(x) < 1e6, x, 0.0))))
GRADUS_BITS_TEST(moderate_angle, select(is_moderate_angle(x), sin_moderate(x), 0.0))
GRADUS_BITS_TEST(composition, select(x > 0.0, x* tanh(log1p_exp(x)), erf(y) * sigmoid(x)))

}  // namespace
}  // namespace gradus::scalar::test
