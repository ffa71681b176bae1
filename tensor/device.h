// Where memory lies.
#pragma once

#include <cstdint>
#include <string>

#pragma GCC visibility push(default)

namespace gradus {

// `other` is a device that an embedder brings.
enum class DeviceKind : uint8_t { cpu, cuda, other };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda:0" or "other:1".
inline std::string to_string(Device d) {
  if (d.kind == DeviceKind::cpu) return "cpu";
  return (d.kind == DeviceKind::cuda ? "cuda:" : "other:") + std::to_string(d.index);
}

}  // namespace gradus

#pragma GCC visibility pop
