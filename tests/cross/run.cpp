// run CASES: calls the kernels that it is linked with as the file says, and compares what they
// store with what they have to, bit for bit; one NaN is as good as another. For the target, where
// nothing of Gradus is but the kernels.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/cross/kernel.h"

extern "C" {
float gradus_fmod_f32(float a, float b) { return std::fmod(a, b); }
double gradus_fmod_f64(double a, double b) { return std::fmod(a, b); }
}

namespace {

using Bytes = std::vector<std::byte>;

// Fails at the end of what was written, which stands for a damaged file.
class Reader {
 public:
  explicit Reader(const char* path) : in_(path, std::ios::binary) {}
  bool more() { return in_.peek() != std::ifstream::traits_type::eof(); }
  bool good() const { return static_cast<bool>(in_); }
  std::int64_t number() {
    std::int64_t n = 0;
    in_.read(reinterpret_cast<char*>(&n), sizeof n);
    return n;
  }
  Bytes bytes() {
    Bytes b(static_cast<std::size_t>(number()));
    in_.read(reinterpret_cast<char*>(b.data()), static_cast<std::streamsize>(b.size()));
    return b;
  }

 private:
  std::ifstream in_;
};

// Of a float of so many bytes, -2 for bf16.
bool is_nan(std::int64_t kind, const std::byte* at) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<std::size_t>(kind < 0 ? -kind : kind));
  switch (kind) {
    case 8:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    case 4:
      return (bits & 0x7fffffff) > 0x7f800000;
    case 2:
      return (bits & 0x7fff) > 0x7c00;
    default:
      return (bits & 0x7fff) > 0x7f80;
  }
}

// The first byte of an element that differs, or the size.
std::size_t difference(std::int64_t kind, const Bytes& expected, const Bytes& actual) {
  const auto size = static_cast<std::size_t>(kind == 0 ? 1 : kind < 0 ? -kind : kind);
  for (std::size_t i = 0; i + size <= expected.size(); i += size) {
    if (!std::memcmp(&expected[i], &actual[i], size)) continue;
    if (kind == 0 || !is_nan(kind, &expected[i]) || !is_nan(kind, &actual[i])) return i;
  }
  return expected.size();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Reader in(argv[1]);
  std::size_t cases = 0, wrong = 0;
  while (in.more()) {
    const NamedKernel& kernel = kernels[in.number()];
    const std::int64_t rows = in.number(), columns = in.number();
    const auto slots = static_cast<std::size_t>(in.number());
    std::vector<std::int64_t> row_steps(slots);
    for (auto& step : row_steps) step = in.number();
    std::vector<std::int64_t> column_steps(static_cast<std::size_t>(in.number()));
    for (auto& step : column_steps) step = in.number();
    std::vector<Bytes> buffers(static_cast<std::size_t>(in.number()));
    for (Bytes& b : buffers) b = in.bytes();
    const std::size_t loads = buffers.size();
    std::vector<Bytes> expected;
    std::vector<std::int64_t> kinds;
    while (buffers.size() < slots) {
      kinds.push_back(in.number());
      expected.push_back(in.bytes());
      buffers.emplace_back(expected.back().size(), std::byte{0xa5});
    }
    if (!in.good()) {
      std::fprintf(stderr, "the file ends within a case\n");
      return 1;
    }
    std::vector<std::byte*> pointers;
    for (Bytes& b : buffers) pointers.push_back(b.data());
    kernel.call(rows, columns, pointers.data(), row_steps.data(), column_steps.data());
    ++cases;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t at = difference(kinds[i], expected[i], buffers[loads + i]);
      if (at == expected[i].size()) continue;
      if (++wrong <= 20)
        std::fprintf(stderr, "%s of %lld x %lld: store %zu differs at byte %zu\n", kernel.name,
                     static_cast<long long>(rows), static_cast<long long>(columns), i, at);
      break;
    }
  }
  std::printf("%zu of %zu cases differ\n", wrong, cases);
  return cases == 0 || wrong ? 1 : 0;
}
