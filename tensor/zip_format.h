// What the reading and the writing end of zip archives share. The format is PKWARE's APPNOTE 6.3,
// sections 4.3 to 4.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradus {

enum class ZipMethod : uint16_t { stored = 0, deflated = 8 };

// A file of an archive, as the archive's directory has it. Nothing of it is certain.
struct ZipMember {
  std::string name;       // any bytes
  uint64_t size = 0;      // unpacked
  uint64_t packed = 0;    // as it lies in the archive
  uint64_t header = 0;    // where the record before its bytes begins
  uint32_t checksum = 0;  // CRC-32 of the unpacked bytes
  uint16_t method = 0;    // a ZipMethod, or any other number
  bool encrypted = false;

  bool is(ZipMethod m) const { return method == static_cast<uint16_t>(m); }
};

namespace zip {

inline constexpr uint32_t local_sign = 0x04034b50, central_sign = 0x02014b50, end_sign = 0x06054b50,
                          wide_end_sign = 0x06064b50, wide_locator_sign = 0x07064b50;
// Of the records without names and extra fields.
inline constexpr size_t local_bytes = 30, central_bytes = 46, end_bytes = 22, wide_end_bytes = 56,
                        wide_locator_bytes = 20;
inline constexpr uint16_t wide_extra = 1;  // the extra field with 64-bit numbers
inline constexpr uint16_t encrypted_flag = 1, utf8_flag = 1 << 11;

}  // namespace zip

}  // namespace gradus
