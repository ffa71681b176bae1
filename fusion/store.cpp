#include "fusion/store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradus::fusion {

namespace {

// An entry: this line, the key's length, the key, the object's length, the object, and the hash of
// all that.
constexpr std::string_view heading = "gradus kernel 1\n";

// Fowler, Noll and Vo's hash (FNV-1a): finds damage, not forgery.
uint64_t hash(std::string_view bytes, uint64_t h = 0xcbf29ce484222325) {
  for (char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

void append(std::string& s, uint64_t n) { s.append(reinterpret_cast<const char*>(&n), sizeof n); }
void append(std::string& s, std::string_view part) {
  append(s, static_cast<uint64_t>(part.size()));
  s.append(part);
}

// Takes a length and as many bytes from the front; nothing where there are fewer.
std::optional<std::string_view> take(std::string_view& s) {
  uint64_t n = 0;
  if (s.size() < sizeof n) return std::nullopt;
  std::memcpy(&n, s.data(), sizeof n);
  s.remove_prefix(sizeof n);
  if (s.size() < n) return std::nullopt;
  std::string_view part = s.substr(0, n);
  s.remove_prefix(n);
  return part;
}

// This user's, and nobody else's to write.
bool is_ours(const struct stat& s) { return s.st_uid == geteuid() && !(s.st_mode & 022); }

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return descriptor_ >= 0; }
  int operator*() const { return descriptor_; }

 private:
  int descriptor_;
};

std::optional<std::string> read_ours(const std::string& path) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat s {};
  if (!file || fstat(*file, &s) || !S_ISREG(s.st_mode) || !is_ours(s)) return std::nullopt;
  std::string bytes(static_cast<size_t>(s.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    ssize_t n = read(*file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    done += static_cast<size_t>(n);
  }
  return bytes;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

ObjectStore::ObjectStore(std::string folder, uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  mkdir(folder_.c_str(), 0700);  // that it is there already is fine; what else it is, is seen next
  struct stat s {};
  if (stat(folder_.c_str(), &s))
    why_not_ = fmt::format("{}: {}", folder_, std::strerror(errno));
  else if (!S_ISDIR(s.st_mode))
    why_not_ = folder_ + " is no folder";
  else if (!is_ours(s))
    why_not_ = folder_ + " belongs to another user or can be written by others";
}

std::string ObjectStore::path(std::string_view key) const {
  return fmt::format("{}/{:016x}{:016x}", folder_, hash(key), hash(key, key.size()));
}

std::optional<std::string> ObjectStore::find(std::string_view key) const {
  if (!usable()) return std::nullopt;
  std::optional<std::string> entry = read_ours(path(key));
  uint64_t sum = 0;
  if (!entry || entry->size() < heading.size() + sizeof sum || !entry->starts_with(heading))
    return std::nullopt;
  std::string_view rest = *entry;
  std::memcpy(&sum, rest.data() + rest.size() - sizeof sum, sizeof sum);
  rest.remove_suffix(sizeof sum);
  if (hash(rest) != sum) return std::nullopt;
  rest.remove_prefix(heading.size());
  auto its_key = take(rest);
  if (!its_key || *its_key != key) return std::nullopt;
  auto object = take(rest);
  if (!object || !rest.empty()) return std::nullopt;
  utimensat(AT_FDCWD, path(key).c_str(), nullptr, 0);  // used now
  return std::string(*object);
}

void ObjectStore::put(std::string_view key, std::string_view object) const {
  if (!usable()) return;
  static std::atomic<uint64_t> next{0};
  std::string entry(heading);
  append(entry, key);
  append(entry, object);
  append(entry, hash(entry));
  const std::string place = path(key);
  const std::string fresh = fmt::format("{}.{}.{}", place, getpid(), next++);
  {
    File file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) return;
    if (!write_all(*file, entry)) {
      unlink(fresh.c_str());
      return;
    }
  }
  if (std::rename(fresh.c_str(), place.c_str())) {
    unlink(fresh.c_str());
    return;
  }
  const auto bytes = static_cast<int64_t>(entry.size());
  if (room_.fetch_sub(bytes) < bytes) remove_oldest();
}

// By when they were used or written last. Files that are no entries (of a process that was killed
// while it wrote one) go in the same way.
void ObjectStore::remove_oldest() const {
  struct Entry {
    int64_t seconds, nanoseconds;
    std::string path;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t sum = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder_, failed), end; !failed && it != end;
       it.increment(failed)) {
    struct stat s {};
    if (lstat(it->path().c_str(), &s) || !S_ISREG(s.st_mode) || !is_ours(s)) continue;
    entries.push_back({s.st_mtim.tv_sec, s.st_mtim.tv_nsec, it->path().string(),
                       static_cast<uint64_t>(s.st_size)});
    sum += entries.back().bytes;
  }
  if (sum > most_bytes_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.seconds, a.nanoseconds) < std::tie(b.seconds, b.nanoseconds);
    });
    // Down to three quarters, so that not every entry that comes looks through the folder.
    for (const Entry& e : entries) {
      if (sum <= most_bytes_ / 4 * 3) break;
      if (!unlink(e.path.c_str())) sum -= e.bytes;
    }
  }
  room_ = sum < most_bytes_ ? static_cast<int64_t>((most_bytes_ - sum) / 4) : 0;
}

}  // namespace gradus::fusion
