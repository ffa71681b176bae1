// replay_NAME NAME [VARIANTS]: the fuzz target NAME without libFuzzer. Runs it on each of its seeds
// and on VARIANTS (20) variants of each, which are the same in every run. What fails is named on
// stderr.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <fnmatch.h>
#include <unistd.h>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Where a sanitizer is linked: no input justifies more memory than scripts/fuzz allows.
const char* __asan_default_options() { return "max_allocation_size_mb=1024:handle_abort=0"; }
void __sanitizer_set_death_callback(void (*call)()) __attribute__((weak));
}

namespace {

namespace fs = std::filesystem;

constexpr size_t largest = 9 << 10;  // bytes of a seed
constexpr unsigned limit = 60;       // seconds for an input

// What runs: for whoever reads that it failed.
char running[4096];

void name_the_input() {
  const size_t n = std::strlen(running);
  if (write(STDERR_FILENO, running, n) < 0) std::_Exit(1);
}

void on_signal(int signal) {
  name_the_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// xorshift64*, Vigna, ACM TOMS 42 (4), 2016.
struct Random {
  uint64_t state;
  size_t below(size_t n) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return n ? (state * 2685821657736338717u >> 32) % n : 0;
  }
};

// One to four edits: a bit, a byte, a part left out, a part copied to another place.
std::string variant(std::string bytes, Random random) {
  for (size_t edits = 1 + random.below(4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random.below(bytes.size());
    const size_t n = 1 + random.below(std::min<size_t>(bytes.size() - at, 32));
    switch (random.below(4)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.below(256));
        break;
      case 2:
        bytes.erase(at, n);
        break;
      default:
        bytes.insert(random.below(bytes.size()), bytes.substr(at, n));
        break;
    }
  }
  return bytes;
}

void run(const std::string& bytes, const fs::path& seed, size_t number) {
  std::snprintf(running, sizeof running, "failed: %s, variant %zu\n", seed.c_str(), number);
  alarm(limit);
  // As libFuzzer does: a block of this size and no more, so that reading past its end is seen.
  const std::vector<uint8_t> data(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(data.data(), data.size());
}

std::vector<fs::path> seeds_of(const std::string& target) {
  const fs::path root = GRADUS_SOURCE_DIR;
  std::ifstream list(root / "tests/fuzz/seeds.txt");
  std::vector<fs::path> seeds;
  for (std::string line; std::getline(list, line);) {
    std::string name, folder, pattern;
    std::istringstream(line) >> name >> folder >> pattern;
    if (name != target || !fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const bool matches = fnmatch(pattern.c_str(), entry.path().filename().c_str(), 0) == 0;
      if (matches && entry.is_regular_file() && entry.file_size() <= largest)
        seeds.push_back(entry.path());
    }
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const size_t variants = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20;
  for (int signal : {SIGABRT, SIGALRM}) std::signal(signal, on_signal);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(name_the_input);
  const std::vector<fs::path> seeds = seeds_of(argv[1]);
  for (const fs::path& seed : seeds) {
    std::ifstream file(seed, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    run(bytes, seed, 0);
    for (size_t n = 1; n <= variants; ++n) run(variant(bytes, Random{n}), seed, n);
  }
  std::printf("%zu seeds\n", seeds.size());
  return seeds.empty() ? 1 : 0;
}
