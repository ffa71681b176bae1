// Where memory lies.
#pragma once

#include <cstdint>
#include <string>

namespace gradus {

enum class DeviceKind : uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu" or "cuda:0".
inline std::string to_string(Device d) {
  return d.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(d.index);
}

}  // namespace gradus
