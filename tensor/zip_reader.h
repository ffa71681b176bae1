// Reads zip archives: members that are stored or deflated, of any size (ZIP64).
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/zip_format.h"

namespace gradus {

// For messages: what such an archive is called, and what writes one.
struct ZipKind {
  std::string_view name = "zip archive", writer = "zip";
};

// An open archive. Names are never used as paths. Memory stays proportional to the directory of the
// archive, which lies in the file. Thread-safe.
//
// The constructor throws Error, beginning with the path, for what is no archive or a damaged one.
// What is about one member throws Error with the reason alone. ResourceError is thrown for what
// cannot be read.
class ZipReader {
 public:
  explicit ZipReader(const std::string& path, ZipKind kind = {});
  // One that is in memory, borrowed; `name` stands for a path in messages.
  ZipReader(std::string name, std::span<const std::byte> bytes, ZipKind kind = {});

  const InputFile& file() const { return file_; }
  const std::vector<ZipMember>& members() const { return members_; }  // in the directory's order

  // Throws Error for a member that is encrypted or compressed otherwise, and for one whose sizes
  // the file cannot hold.
  void check(const ZipMember& member) const;
  // A false size can claim a thousand times the bytes that are there. Unpacks a member that claims
  // much, and throws Error if the claim is false: to be called before memory is taken for it.
  void check_claim(const ZipMember& member) const;

  // Where the member's bytes begin in the file. Those of a stored member may be mapped; nothing
  // compares their checksum then. Throws Error if they do not lie in the file.
  uint64_t place(const ZipMember& member) const;
  // Bytes of a stored member from `from` on. The checksum is not compared. Throws Error for a range
  // that the member does not have.
  void read(const ZipMember& member, uint64_t from, std::span<std::byte> target) const;
  // A checked member, whole.
  std::vector<std::byte> contents(const ZipMember& member) const;

 private:
  struct Directory;
  void open(ZipKind kind);
  std::string last_begun() const;
  bool find_directory(Directory& directory) const;
  bool find_wide_directory(uint64_t end, Directory& directory) const;
  bool read_directory(const Directory& directory);

  InputFile file_;
  std::vector<ZipMember> members_;
};

// The unpacked bytes of a checked member, from its beginning. Outlives neither of its arguments.
class ZipStream {
 public:
  ZipStream(const ZipReader& archive, const ZipMember& member);
  ~ZipStream();
  ZipStream(const ZipStream&) = delete;
  ZipStream& operator=(const ZipStream&) = delete;

  // Fills the target as far as there are bytes, and gives how many there were. Throws Error for
  // damaged ones; the checksum is compared when the end is met.
  size_t read(std::span<std::byte> target);
  size_t operator()(std::span<std::byte> target) { return read(target); }
  // Throws Error if bytes are left, or if the checksum does not match.
  void expect_end();

 private:
  struct Inflate;

  size_t take(std::span<std::byte> target);
  size_t copy(std::span<std::byte> target);
  size_t unpack(std::span<std::byte> target);
  void check_end() const;

  const InputFile& file_;
  const ZipMember& member_;
  uint64_t next_, left_, given_ = 0;
  uint32_t checksum_ = 0;
  bool ended_ = false;
  std::unique_ptr<Inflate> inflate_;  // null for a stored member
};

}  // namespace gradus
