// Standard output, and the progress line on a terminal.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "gradus/context.h"
#include "gradus/tensor.h"

namespace gradus::cli {

// To standard output, as it is.
void put(std::string_view text);
// Throws ResourceError if what was put did not all get out (a full disk, a closed pipe).
void finish_output();

// Writes a text file whole or not at all.
void write_file(const std::string& path, std::string_view text);
// Where a command's -o says: to a file, or, where that is empty, to standard output.
inline void put_to(const std::string& path, std::string_view text) {
  path.empty() ? put(text) : write_file(path, text);
}

// A bar on standard error that is written over, at most some ten times a second; nothing where that
// is no terminal. It is gone with its object.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  // How much of the work is done, 0 to 1, and what is being done.
  void show(double done, std::string_view what);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  std::optional<Clock::time_point> shown_;
};

// "f32[2, 3]  [[1, 2, 3], [4, 5, 6]]", or for many elements "f32[64, 3]  min -1 max 2 mean 0.5",
// with the number of elements that are not finite.
std::string summary(const Tensor& tensor);

}  // namespace gradus::cli
