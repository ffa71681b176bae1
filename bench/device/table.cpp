// The table of a device's rows, and the program that prints it.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "bench/device/rows.h"
#include "devices/cuda/driver_library.h"
#include "devices/cuda/kernels.h"
#include "gradus/error.h"

namespace gradus::bench {

namespace {

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} µs", seconds * 1e6)
                        : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string goal_text(const DeviceRow& r) {
  if (r.goal == 0) return "";
  if (r.each > 0)
    return fmt::format("{:.2f} µs each, goal {:.1f}{}", r.each, r.goal,
                       r.each <= r.goal ? "" : ", missed");
  return fmt::format("goal {:.0f} %{}", r.goal * 100,
                     r.copy_seconds / r.seconds >= r.goal ? "" : ", missed");
}

// "12.3 µs (1.9)": a peer's time, and how many times ours it is.
std::string peer_text(const std::string& microseconds, const DeviceRow& r) {
  if (microseconds.empty() || microseconds == "-") return "-";
  const double peer = std::stod(microseconds) * 1e-6;
  return fmt::format("{} ({:.2f})", time_text(peer), peer / r.seconds);
}

// Copies within the device's memory, by the driver alone.
class Copies {
 public:
  Copies() {
    check(t_.device(&device_, 0));
    check(t_.retain_context(&context_, device_));
    check(t_.set_context(context_));
    check(t_.make_stream(&stream_, 1));
  }
  // The context stays: the process ends soon after.
  double seconds(size_t bytes) {
    using Clock = std::chrono::steady_clock;
    check(t_.set_context(context_));
    fusion::cuda::DevicePointer from = 0, to = 0;
    check(t_.allocate(&from, bytes));
    check(t_.allocate(&to, bytes));
    check(t_.fill(from, 1, bytes, stream_));
    std::vector<double> times;
    const int batch = bytes < (size_t{1} << 26) ? 100 : 10;
    for (int round = 0; round < 12; ++round) {
      check(t_.wait_for_stream(stream_));
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) check(t_.copy(to, from, bytes, stream_));
      check(t_.wait_for_stream(stream_));
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / batch);
    }
    check(t_.free(from));
    check(t_.free(to));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  static void check(int fault) {
    if (fault)
      throw ResourceError("cuda:0: copying fails: {}",
                          fusion::cuda::DriverLibrary::get().error_text(fault));
  }
  const fusion::cuda::DriverTable& t_ = fusion::cuda::DriverLibrary::get().table();
  int device_ = 0;
  fusion::cuda::DriverContext context_ = nullptr;
  fusion::cuda::DriverStream stream_ = nullptr;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string device_table(const std::vector<DeviceRow>& rows, const std::string& peers) {
  std::map<std::string, std::pair<std::string, std::string>> theirs;
  std::istringstream lines(peers);
  for (std::string line; std::getline(lines, line);) {
    const size_t a = line.find('\t'), b = line.find('\t', a + 1);
    if (a == std::string::npos || b == std::string::npos)
      throw Error("a line of the peers is no 'name, tab, eager, tab, compiled': {}", line);
    theirs[line.substr(0, a)] = {line.substr(a + 1, b - a - 1), line.substr(b + 1)};
  }
  std::string text =
      "| what | time | GB/s | of the copy | goal | PyTorch eager | compiled | on the host |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const DeviceRow& r : rows) {
    const bool moves = r.moved_bytes > 0;
    const auto& peer = theirs[r.name];
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", r.name, time_text(r.seconds),
                        moves ? fmt::format("{:.0f}", r.moved_bytes / r.seconds * 1e-9) : "",
                        moves ? fmt::format("{:.0f} %", r.copy_seconds / r.seconds * 100) : "",
                        goal_text(r), peer_text(peer.first, r), peer_text(peer.second, r),
                        r.host_copies);
  }
  return text;
}

std::string device_json(const std::string& device, const std::vector<DeviceRow>& rows) {
  nlohmann::ordered_json json{{"device", device}, {"rows", nlohmann::ordered_json::array()}};
  for (const DeviceRow& r : rows)
    json["rows"].push_back({{"name", r.name},
                            {"seconds", r.seconds},
                            {"moved_bytes", r.moved_bytes},
                            {"copy_seconds", r.copy_seconds},
                            {"host_instructions", r.host_copies}});
  return json.dump(1) + "\n";
}

DeviceUnderTest open_device_under_test() {
  auto context = std::make_shared<Context>(ContextOptions{});
  const char* folder = std::getenv("GRADUS_CUDA_TEST_KERNELS");
  fusion::cuda::use_device(*context, 0, {.folder = folder ? folder : ""});
  auto copies = std::make_shared<Copies>();
  return {.name = fusion::cuda::probe_kernels().devices[0].name,
          .context = std::move(context),
          .copy = [copies](size_t bytes) { return copies->seconds(bytes); }};
}

int device_bench(int argc, char** argv) {
  try {
    DeviceSizes sizes;
    std::string peers, json;
    for (int i = 1; i < argc; ++i) {
      const std::string_view option = argv[i];
      if (option == "--tiny") {
        sizes = DeviceSizes::tiny();
      } else if ((option == "--peers" || option == "--json") && i + 1 < argc) {
        (option == "--peers" ? peers : json) = argv[++i];
      } else {
        fmt::print(stderr, "usage: gradus-portable bench [--tiny] [--peers FILE] [--json FILE]\n");
        return 2;
      }
    }
    const std::string lines = peers.empty() ? "" : read_file(peers);
    const DeviceUnderTest device = open_device_under_test();
    const std::vector<DeviceRow> rows = run_device_rows(device, sizes, [](const DeviceRow& r) {
      fmt::print(stderr, "{}: {}\n", r.name, time_text(r.seconds));
    });
    fmt::print("{}", device_table(rows, lines));
    if (!json.empty()) std::ofstream(json) << device_json(device.name, rows);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}

}  // namespace gradus::bench
