#include "tools/output.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include <unistd.h>

#include "base/file.h"
#include "gradus/messages.h"
#include "gradus/operator.h"

namespace gradus::cli {

namespace {

constexpr int64_t shown_elements = 10;

std::string element_text(const Tensor& t, int64_t index) {
  if (t.dtype() == DType::boolean) return t.item(index) != 0 ? "true" : "false";
  if (t.dtype() == DType::i64) return fmt::format("{}", t.to_int64s()[static_cast<size_t>(index)]);
  if (t.dtype() == DType::u64)
    return fmt::format("{}", static_cast<uint64_t>(t.to_int64s()[static_cast<size_t>(index)]));
  if (is_integral(t.dtype())) return fmt::format("{}", static_cast<int64_t>(t.item(index)));
  // The shortest text that is this element and no other of its dtype.
  double value = t.item(index);
  return t.dtype() == DType::f64 ? fmt::format("{}", value)
                                 : fmt::format("{}", static_cast<float>(value));
}

std::string nested_text(const Tensor& t, size_t dim, int64_t& next) {
  if (dim == t.shape().size()) return element_text(t, next++);
  std::string s = "[";
  for (int64_t i = 0; i < t.shape()[dim]; ++i) s += (i ? ", " : "") + nested_text(t, dim + 1, next);
  return s + "]";
}

}  // namespace

void put(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw ResourceError("standard output cannot be written");
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  std::FILE* f = std::fopen(file.temporary().c_str(), "wb");
  if (!f) throw_file_error(path, "cannot be written", errno);
  bool written = std::fwrite(text.data(), 1, text.size(), f) == text.size();
  int fault = errno;
  if (std::fclose(f) != 0 && written) {
    written = false;
    fault = errno;
  }
  if (!written) throw_file_error(path, "cannot be written", fault);
  file.commit();
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() { clear(); }

void Progress::show(double done, std::string_view what) {
  if (!terminal_) return;
  const auto now = Clock::now();
  if (shown_ && now - *shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  constexpr int width = 24;
  const int full = static_cast<int>(std::clamp(done, 0.0, 1.0) * width);
  // The terminal itself erases what is left of the line.
  fmt::print(stderr, "\r[{:#<{}}{:{}}] {:3.0f} %  {}\x1b[K", "", full, "", width - full, 100 * done,
             printable(what, 48));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_.reset();
}

std::string summary(const Tensor& t) {
  std::string s = describe(t) + "  ";
  int64_t n = t.numel();
  int64_t next = 0;
  if (n == 0) return s + "no elements";
  if (n <= shown_elements) return s + nested_text(t, 0, next);
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t odd = 0;  // NaN or infinite
  for (double v : t.to_doubles()) {
    if (!std::isfinite(v)) {
      ++odd;
      continue;
    }
    least = std::min(least, v);
    most = std::max(most, v);
    sum += v;
  }
  if (odd < n)
    s += fmt::format("min {:.6g} max {:.6g} mean {:.6g}", least, most,
                     sum / static_cast<double>(n - odd));
  if (odd) s += fmt::format("{}{} not finite", odd < n ? ", " : "", odd);
  return s;
}

}  // namespace gradus::cli
