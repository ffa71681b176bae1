// Files for tests: folders that go away, archives laid out byte by byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/context.h"
#include "gradus/tensor.h"
#include "tests/start.h"

namespace gradus::test {

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gradus-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string at(const std::string& name) const { return (folder / name).string(); }
  std::filesystem::path folder;
};

inline void put(const std::string& path, std::string_view bytes) {
  // Some file systems wait for the disk when a file is cut and written again.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}
inline std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline std::string data_file(const std::string& name) {
  return source_folder() + "/tests/tensor/data/" + name;
}

// A context whose memory is counted.
struct Counted {
  std::shared_ptr<HeapAllocator> heap = std::make_shared<HeapAllocator>();
  Context context{{1, heap, nullptr}};
};

// What is thrown, as text; empty if nothing is. Other kinds of exception pass through.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

inline void append_number(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

inline uint32_t crc32(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

// An .npy file with any header text and any bytes behind it.
inline std::string npy(std::string_view header, std::string_view elements, int major = 1) {
  std::string out = "\x93NUMPY";
  append_number(out, static_cast<uint64_t>(major), 2);
  append_number(out, header.size(), major == 1 ? 2 : 4);
  return out.append(header).append(elements);
}
inline std::string npy_f4(std::span<const float> values) {
  std::string shape = std::to_string(values.size());
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + ",), }\n",
             {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// Deflate without compression: blocks of plain bytes. `last` tells whether the stream ends there.
inline std::string deflate_plain(std::string_view bytes, bool last = true) {
  std::string out;
  do {
    std::string_view block = bytes.substr(0, 65535);
    bytes.remove_prefix(block.size());
    out += static_cast<char>(bytes.empty() && last);
    append_number(out, block.size(), 2);
    append_number(out, ~block.size() & 0xffff, 2);
    out.append(block);
  } while (!bytes.empty());
  return out;
}

// A zip archive of which every field can be told a lie.
class ZipBytes {
 public:
  struct Member {
    std::string name, bytes;  // as they lie in the file
    uint64_t size = 0;        // unpacked, as claimed
    uint32_t crc = 0;
    uint16_t method = 0, flags = 0;  // 8: deflated; flag 1: encrypted
    bool zip64 = false;              // sizes in the extra field
    int64_t offset = -1;             // of a local header written before; -1: writes its own
  };
  static Member stored(std::string name, std::string bytes) {
    Member m;
    m.size = bytes.size();
    m.crc = crc32(bytes);
    m.name = std::move(name);
    m.bytes = std::move(bytes);
    return m;
  }
  static Member deflated(std::string name, std::string_view bytes) {
    Member m = stored(std::move(name), std::string(bytes));
    m.bytes = deflate_plain(bytes);
    m.method = 8;
    return m;
  }

  size_t add(const Member& m) {
    size_t offset = m.offset >= 0 ? static_cast<size_t>(m.offset) : file_.size();
    std::string common, extra;
    append_number(common, m.zip64 ? 45 : 20, 2);
    append_number(common, m.flags, 2);
    append_number(common, m.method, 2);
    append_number(common, 0x00210000, 4);  // 1980-01-01
    append_number(common, m.crc, 4);
    append_number(common, m.zip64 ? 0xffffffff : m.bytes.size(), 4);
    append_number(common, m.zip64 ? 0xffffffff : m.size, 4);
    append_number(common, m.name.size(), 2);
    if (m.zip64) {
      append_number(extra, 1, 2);
      append_number(extra, 16, 2);
      append_number(extra, m.size, 8);
      append_number(extra, m.bytes.size(), 8);
    }
    append_number(common, extra.size(), 2);
    if (m.offset < 0) file_ += "PK\3\4" + common + m.name + extra + m.bytes;
    directory_ += "PK\1\2";
    append_number(directory_, 45, 2);
    directory_ += common;
    append_number(directory_, 0, 4);  // comment, disk
    append_number(directory_, 0, 6);  // attributes
    append_number(directory_, offset, 4);
    directory_ += m.name + extra;
    ++count_;
    return offset;
  }
  std::string bytes() const {
    std::string out = file_ + directory_ + "PK\5\6";
    append_number(out, 0, 4);
    append_number(out, count_, 2);
    append_number(out, count_, 2);
    append_number(out, directory_.size(), 4);
    append_number(out, file_.size(), 4);
    append_number(out, 0, 2);
    return out;
  }

 private:
  std::string file_, directory_;
  size_t count_ = 0;
};

}  // namespace gradus::test
