// Files, written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gradus {

// Throws for `code`, an errno: "path: what: reason". An Error where the user can mend it (nothing
// there, no permission, a folder), a ResourceError otherwise (disk full, too many open files).
[[noreturn]] void throw_file_error(std::string_view path, std::string_view what, int code);

// The size in bytes of a regular file. Throws Error for what is missing and for folders, pipes and
// devices, whose size says nothing.
uint64_t regular_file_size(const std::string& path);

// A regular file, read at any place. Thread-safe.
class InputFile {
 public:
  // Throws Error and ResourceError as regular_file_size does.
  explicit InputFile(const std::string& path);
  // Bytes that are in memory already, borrowed; `name` stands for a path in messages.
  InputFile(std::string name, std::span<const std::byte> bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  bool holds(uint64_t at, uint64_t bytes) const { return at <= size_ && bytes <= size_ - at; }
  // Fills the target with the bytes from `at` on. Throws ResourceError where they cannot be read:
  // also if the file has become shorter.
  void read(uint64_t at, std::span<std::byte> target) const;

 private:
  std::string path_;
  int file_ = -1;                      // none: the bytes are in memory
  const std::byte* memory_ = nullptr;  // borrowed
  uint64_t size_ = 0;
};

// A file that appears under its name when it is complete: it is written under another name in the
// same folder and renamed by `commit`. Without a commit nothing is left behind, and what was there
// before stays. A file that is replaced keeps its permission bits; a symbolic link stays a link and
// the file it names is replaced. Files one may not write, and what is no regular file, are refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The file to write; it exists and is empty. Whoever writes it closes it before `commit`.
  const std::string& temporary() const { return temporary_; }
  // Flushes to the disk and renames. Once.
  void commit();

 private:
  std::string path_;    // as the user gave it, for messages
  std::string target_;  // with links followed
  std::string temporary_;
  bool committed_ = false;
};

}  // namespace gradus
