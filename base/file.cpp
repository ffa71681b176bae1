#include "base/file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradus/error.h"

namespace gradus {

void throw_file_error(std::string_view path, std::string_view what, int code) {
  std::string text = fmt::format("{}: {}: {}", path, what, std::generic_category().message(code));
  switch (code) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      throw Error(std::move(text));
    default:
      throw ResourceError(std::move(text));
  }
}

namespace {

void check_path(const std::string& path) {
  if (path.empty()) throw Error("a file name is empty");
  // The system would stop at the NUL and open another file.
  if (path.find('\0') != std::string::npos) throw Error("a file name holds a NUL character");
}

// Follows links by hand: the last one may point at a file that is yet to be made.
std::string follow_links(const std::string& path) {
  std::filesystem::path at = path;
  for (int links = 0; links < 40; ++links) {
    std::error_code fault;
    std::filesystem::path next = std::filesystem::read_symlink(at, fault);
    if (fault) return at.string();
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  throw_file_error(path, "cannot be written", ELOOP);
}

}  // namespace

uint64_t regular_file_size(const std::string& path) {
  check_path(path);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) throw_file_error(path, "cannot be read", errno);
  if (S_ISDIR(info.st_mode)) throw_file_error(path, "cannot be read", EISDIR);
  if (!S_ISREG(info.st_mode))
    throw Error("{}: is no regular file; copy its bytes into one and name that", path);
  return static_cast<uint64_t>(info.st_size);
}

InputFile::InputFile(const std::string& path) : path_(path) {
  regular_file_size(path);  // says what is no regular file
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw_file_error(path, "cannot be read", errno);
  // Of what was opened, which may be another file by now.
  struct stat info;
  const int fault = fstat(file_, &info) == 0 ? 0 : errno;
  if (fault) {
    close(file_);
    throw_file_error(path, "cannot be read", fault);
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

InputFile::InputFile(std::string name, std::span<const std::byte> bytes)
    : path_(std::move(name)), memory_(bytes.data()), size_(bytes.size()) {}

InputFile::~InputFile() {
  if (file_ >= 0) close(file_);
}

void InputFile::read(uint64_t at, std::span<std::byte> target) const {
  if (file_ < 0) {
    if (!holds(at, target.size()))
      throw Error("{}: bytes behind its end are asked for; it is cut short", path_);
    if (!target.empty()) std::memcpy(target.data(), memory_ + at, target.size());
    return;
  }
  while (!target.empty()) {
    const ssize_t n = pread(file_, target.data(), target.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error(path_, "cannot be read", errno);
    if (n == 0) throw ResourceError("{}: became shorter while it was read; read it again", path_);
    at += static_cast<uint64_t>(n);
    target = target.subspan(static_cast<size_t>(n));
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  check_path(path);
  target_ = follow_links(path);
  struct stat info;
  bool exists = stat(target_.c_str(), &info) == 0;
  if (exists) {
    if (S_ISDIR(info.st_mode)) throw_file_error(path, "cannot be written", EISDIR);
    if (!S_ISREG(info.st_mode))
      throw Error("{}: is no regular file and is not replaced; name another", path);
    // Renaming over it needs no right to write it: ask all the same.
    if (access(target_.c_str(), W_OK) != 0) throw_file_error(path, "cannot be written", errno);
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0;; ++attempt) {
    std::filesystem::path name = target_;
    std::string stem = name.filename().string();
    name.replace_filename(
        fmt::format(".{}.{}-{}", stem.substr(0, 200), getpid(), counter.fetch_add(1)));
    temporary_ = name.string();
    // The new file's permissions are what the user's umask leaves of 0666.
    int fd = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST && attempt < 1000) continue;  // left by a killed process
    if (fd < 0) throw_file_error(path, "cannot be written", errno);
    // Best effort: on some file systems bits cannot be set.
    if (exists) static_cast<void>(fchmod(fd, info.st_mode & 07777) == 0);
    close(fd);
    return;
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::commit() {
  GRADUS_CHECK(!committed_);
  // Renaming before the bytes are on the disk could leave an empty file after a power cut.
  int fd = open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_file_error(path_, "cannot be written", errno);
  int fault = fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS ? 0 : errno;
  close(fd);
  if (fault) throw_file_error(path_, "cannot be written", fault);
  if (rename(temporary_.c_str(), target_.c_str()) != 0)
    throw_file_error(path_, "cannot be written", errno);
  committed_ = true;
}

}  // namespace gradus
