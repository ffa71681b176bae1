// Files, written whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradus {

// Throws for `code`, an errno: "path: what: reason". An Error where the user can mend it (nothing
// there, no permission, a folder), a ResourceError otherwise (disk full, too many open files).
[[noreturn]] void throw_file_error(std::string_view path, std::string_view what, int code);

// The size in bytes of a regular file. Throws Error for what is missing and for folders, pipes and
// devices, whose size says nothing.
uint64_t regular_file_size(const std::string& path);

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
