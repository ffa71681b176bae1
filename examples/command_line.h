// What the larger examples take on their command line, and how they show that they work.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

#include "gradus/error.h"

struct CommandLine {
  bool small = false;        // a setting of seconds, for the tests
  std::optional<int> steps;  // of training
  std::string plot;          // the figure goes there, if anywhere
  int ranks = 2;             // threads that run it together, where it is for several ranks
  bool mpi = false;          // the processes that mpirun has started run it instead

  // Throws gradus::Error for what is not known.
  static CommandLine parse(int argc, char** argv) {
    CommandLine out;
    for (int i = 1; i < argc; ++i) {
      const std::string_view flag = argv[i];
      auto value = [&]() -> std::string {
        if (++i == argc) throw gradus::Error("{} takes a value", flag);
        return argv[i];
      };
      if (flag == "--small") {
        out.small = true;
      } else if (flag == "--plot") {
        out.plot = value();
      } else if (flag == "--steps") {
        out.steps = number(flag, value());
      } else if (flag == "--ranks") {
        out.ranks = number(flag, value());
      } else if (flag == "--mpi") {
        out.mpi = true;
      } else {
        throw gradus::Error(
            "'{}' is not known; there are --small, --steps NUMBER, --plot FILE.svg, and where "
            "ranks "
            "work together --ranks NUMBER, --mpi",
            flag);
      }
    }
    return out;
  }

 private:
  static int number(std::string_view flag, const std::string& text) {
    int n = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || *end != '\0' || n < 1)
      throw gradus::Error("{} takes a whole number from 1 on, not '{}'", flag, text);
    return n;
  }
};

// A bar on a terminal; nothing where standard error is a file or a pipe.
class Progress {
 public:
  Progress(std::string what, int steps)
      : what_(std::move(what)), steps_(steps), shown_(isatty(STDERR_FILENO) != 0) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\x1b[K");
  }
  void step(int done) {
    constexpr int width = 40;
    const int filled = static_cast<int>(static_cast<int64_t>(width) * done / std::max(steps_, 1));
    if (!shown_ || filled == filled_) return;
    filled_ = filled;
    std::string bar(static_cast<size_t>(filled), '#');
    bar.resize(width, '.');
    std::fprintf(stderr, "\r%s [%s]", what_.c_str(), bar.c_str());
  }

 private:
  std::string what_;
  int steps_, filled_ = -1;
  bool shown_;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A figure that has to be within its bounds, printed. Returns whether it is.
inline bool holds(const char* what, double value, double low, double high) {
  const bool right = value >= low && value <= high;
  std::printf("%-58s %10.4g  %s\n", what, value, right ? "" : "<- too far off");
  if (!right) std::printf("   expected between %g and %g\n", low, high);
  return right;
}

// Runs an example; what goes wrong is said, and is exit status 1, as is a figure that does not hold
// after as many steps as the example takes by itself.
inline int run_example(int argc, char** argv, const std::function<bool(const CommandLine&)>& run) {
  try {
    const CommandLine line = CommandLine::parse(argc, argv);
    return run(line) || line.steps ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
