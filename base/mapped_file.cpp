#include "base/mapped_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace gradus {

MappedFile::MappedFile(const std::string& path) {
  regular_file_size(path);  // says what is no regular file
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_file_error(path, "cannot be read", errno);
  // Of what was opened, which may be another file by now.
  struct stat info;
  void* memory = nullptr;
  int fault = fstat(file, &info) == 0 ? 0 : errno;
  auto size = fault ? 0 : static_cast<size_t>(info.st_size);
  if (size > 0) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) fault = errno;
  }
  close(file);
  if (fault) throw_file_error(path, "cannot be read", fault);
  bytes_ = {static_cast<std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace gradus
