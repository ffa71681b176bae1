// Compiled code on disk, for the processes to come.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradus::fusion {

// A folder of entries, each under the name of its key's hash. Several processes may use one at a
// time: an entry appears whole, by renaming it. Thread-safe. Nothing that fails here is an error:
// an entry that cannot be read is absent, one that cannot be written is left out.
class ObjectStore {
 public:
  // Makes the folder, for this user alone, if it is not there. One that another user owns or that
  // others can write is not used.
  // What was used longest ago is removed where entries take more than `most_bytes` together.
  explicit ObjectStore(std::string folder, uint64_t most_bytes = uint64_t{256} << 20);

  bool usable() const { return why_not_.empty(); }
  // For people: why the folder is not used. Empty if it is.
  const std::string& why_not() const { return why_not_; }

  // What was put under the key. Nothing if there is no such entry, or one that is damaged, of
  // another key, of another user or open to others.
  std::optional<std::string> find(std::string_view key) const;
  void put(std::string_view key, std::string_view object) const;
  // Where a key's entry lies.
  std::string path(std::string_view key) const;

 private:
  void remove_oldest() const;

  std::string folder_, why_not_;
  uint64_t most_bytes_;
  // Bytes that others may write until the folder is looked through again.
  mutable std::atomic<int64_t> room_{0};
};

}  // namespace gradus::fusion
