// Compiled code on disk, for the processes to come.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradus::fusion::cpu {

// A folder of entries, each under the name of its key's hash. Several processes may use one at a
// time: an entry appears whole, by renaming it. Thread-safe. Nothing that fails here is an error:
// an entry that cannot be read is absent, one that cannot be written is left out.
class ObjectStore {
 public:
  // Makes the folder, for this user alone, if it is not there. One that another user owns or that
  // others can write is not used.
  explicit ObjectStore(std::string folder);

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
  std::string folder_, why_not_;
};

}  // namespace gradus::fusion::cpu
