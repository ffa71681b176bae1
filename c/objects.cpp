#include "c/objects.h"

#include "gradus/per_thread.h"

namespace gradus::c {

namespace {

struct Message {
  std::string text;
  bool no_memory = false;  // not even for the text
};

}  // namespace

void set_message(const char* text) noexcept {
  Message& m = PerThread<Message>::get();
  try {
    m.text = text;
    m.no_memory = false;
  } catch (...) {
    m.no_memory = true;
  }
}

const char* last_error() {
  const Message& m = PerThread<Message>::get();
  return m.no_memory ? "out of memory" : m.text.c_str();
}

Layout layout_of(gradus_dtype dtype, size_t rank, const int64_t* shape) {
  if (dtype < 0 || dtype >= dtype_count) throw Error("{} is no dtype", dtype);
  if (rank > 64) throw Error("a tensor of {} dimensions; 64 are allowed", rank);
  if (rank) given(shape, "the shape");
  std::span<const int64_t> sizes(shape, rank);
  for (int64_t n : sizes)
    if (n < 0) throw Error("a size is {}, which is negative", n);
  const auto of = static_cast<DType>(dtype);
  const auto count = checked_numel(sizes);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(size_of(of)), &bytes))
    throw Error("the shape {} has more elements than can be counted", to_string(sizes));
  return Layout(of, Sizes(sizes));
}

void check_bools(const Tensor& t) {
  if (t.dtype() != DType::boolean) return;
  for (int64_t i = 0; i < t.numel(); ++i)
    if (t.data()[i] > std::byte{1}) throw Error("a bool is neither 0 nor 1");
}

}  // namespace gradus::c
