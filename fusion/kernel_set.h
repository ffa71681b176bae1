// The compiled kernels that were there at some moment.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace gradus::fusion {

class Kernel;
class StageKernel;

// Immutable: whoever holds one keeps what it has. A larger set shares most of what it has with the
// one before, so that n kernels, one after the other, copy n log n texts.
class KernelSet {
 public:
  enum class Of : uint8_t { nest, stage };

  // By its text; null if there is none, or none yet.
  std::shared_ptr<const Kernel> find(const std::string& nest) const;
  std::shared_ptr<const StageKernel> find_stage(const std::string& stage) const;
  // Whether no code can be made for it, where instructions of it need kernels all the same.
  bool has_failed(const std::string& text) const;
  // How many have code, and how many can have none.
  size_t nests() const { return nests_; }
  size_t stages() const { return stages_; }
  size_t failed() const { return failed_; }
  // Sets of one source are numbered as they come.
  uint64_t generation() const { return generation_; }

  // The next sets: with a text that this one does not have, and its code, a Kernel or a
  // StageKernel, or null where none can be made; and without a text.
  std::shared_ptr<KernelSet> with(Of of, const std::string& text,
                                  std::shared_ptr<const void> code) const;
  std::shared_ptr<KernelSet> without(const std::string& text) const;

 private:
  struct Entry {
    Of of;
    std::shared_ptr<const void> code;  // null: none can be made
  };
  using Part = std::unordered_map<std::string, Entry>;

  const Entry* look_up(const std::string& text) const;
  size_t& count_of(const Entry& entry);

  std::vector<std::shared_ptr<const Part>> parts_;  // each has more texts than the next
  size_t nests_ = 0, stages_ = 0, failed_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace gradus::fusion
