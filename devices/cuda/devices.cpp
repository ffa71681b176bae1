#include "devices/cuda/devices.h"

#include <cstring>

#include <fmt/format.h>

#include "devices/cuda/driver_library.h"
#include "fusion/cuda/nvrtc.h"

namespace gradus::fusion::cuda {

namespace {

// Numbers of CUdevice_attribute.
constexpr int multiprocessor_count = 16, compute_major = 75, compute_minor = 76;
constexpr int least_major = 8;  // whose machine converts bf16

// The devices of a driver that is usable; what fails is said in `fault`.
std::vector<DeviceFacts> find_devices(std::string& fault) {
  const DriverLibrary& driver = DriverLibrary::get();
  const DriverTable& t = driver.table();
  std::vector<DeviceFacts> devices;
  int count = 0;
  auto failed = [&](int code, const char* what) {
    if (code) fault = fmt::format("{} fails: {}", what, driver.error_text(code));
    return code != 0;
  };
  if (failed(t.device_count(&count), "counting devices")) return devices;
  for (int i = 0; i < count; ++i) {
    DeviceFacts facts;
    facts.number = i;
    int device = 0;
    char name[256] = {};
    DriverDeviceId id{};
    if (failed(t.device(&device, i), "opening a device") ||
        failed(t.device_name(name, sizeof name - 1, device), "asking for a device's name") ||
        failed(t.device_attribute(&facts.major, compute_major, device), "asking for a version") ||
        failed(t.device_attribute(&facts.minor, compute_minor, device), "asking for a version") ||
        failed(t.device_attribute(&facts.multiprocessors, multiprocessor_count, device),
               "counting multiprocessors") ||
        failed(t.device_memory(&facts.memory_bytes, device), "asking for a device's memory") ||
        failed(t.device_id(&id, device), "asking for a device's number"))
      return devices;
    static_assert(sizeof facts.id == sizeof id);
    std::memcpy(facts.id.data(), &id, sizeof id);
    facts.name = name;
    devices.push_back(std::move(facts));
  }
  if (devices.empty())
    fault = "the driver sees no GPU. Look at nvidia-smi, and at CUDA_VISIBLE_DEVICES";
  return devices;
}

std::string line(const Library& library) {
  if (!library) return fmt::format("  {}\n", library.fault);  // which says of what
  return fmt::format("  {:<16}{}, {}\n", library.what, library.version, library.path);
}

}  // namespace

std::string DeviceFacts::architecture() const {
  return major ? fmt::format("sm_{}{}", major, minor) : "";
}

DeviceReport probe_devices() {
  DeviceReport report = probe_kernels();
  report.products = product_library().library;
  report.convolutions = convolution_library().library;
  report.exchanges = exchange_library().library;
  return report;
}

DeviceReport probe_kernels() {
  DeviceReport report;
  report.driver = DriverLibrary::get().library();
  report.compiler = Nvrtc::get().library();
  if (!report.driver)
    report.no_device = report.driver.fault;
  else
    report.devices = find_devices(report.no_device);
  if (report.no_device.empty() && !report.compiler) report.no_device = report.compiler.fault;
  return report;
}

std::string to_string(const DeviceReport& report) {
  std::string s;
  for (const DeviceFacts& d : report.devices)
    s += fmt::format("cuda:{}  {}, {} multiprocessors of {}, {:.1f} GiB{}\n", d.number, d.name,
                     d.multiprocessors, d.architecture(),
                     static_cast<double>(d.memory_bytes) / (1 << 30),
                     d.major < least_major ? "; too old for kernels, which want sm_80" : "");
  if (report.devices.empty()) s += "no CUDA device\n";
  for (const Library* l : {&report.driver, &report.compiler, &report.products, &report.convolutions,
                           &report.exchanges})
    s += line(*l);
  if (!report.no_device.empty() && report.driver) s += fmt::format("  {}\n", report.no_device);
  return s;
}

std::string why_no_device(int number) {
  const DeviceReport report = probe_kernels();
  if (!report.no_device.empty()) return report.no_device;
  const size_t n = report.devices.size();
  if (number < 0 || static_cast<size_t>(number) >= n)
    return fmt::format("the driver sees {} device{}, cuda:0{}", n, n == 1 ? "" : "s",
                       n == 1 ? "" : fmt::format(" to cuda:{}", n - 1));
  const DeviceFacts& d = report.devices[static_cast<size_t>(number)];
  if (d.major < least_major)
    return fmt::format("{} is of {}; kernels want sm_80 or newer", d.name, d.architecture());
  return "";
}

}  // namespace gradus::fusion::cuda
