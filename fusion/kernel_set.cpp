#include "fusion/kernel_set.h"

#include "fusion/kernels.h"

namespace gradus::fusion {

const KernelSet::Entry* KernelSet::look_up(const std::string& text) const {
  for (const auto& part : parts_)
    if (auto found = part->find(text); found != part->end()) return &found->second;
  return nullptr;
}

size_t& KernelSet::count_of(const Entry& entry) {
  if (!entry.code) return failed_;
  return entry.of == Of::nest ? nests_ : stages_;
}

std::shared_ptr<const Kernel> KernelSet::find(const std::string& nest) const {
  const Entry* entry = look_up(nest);
  if (!entry || entry->of != Of::nest) return nullptr;
  return std::static_pointer_cast<const Kernel>(entry->code);
}

std::shared_ptr<const StageKernel> KernelSet::find_stage(const std::string& stage) const {
  const Entry* entry = look_up(stage);
  if (!entry || entry->of != Of::stage) return nullptr;
  return std::static_pointer_cast<const StageKernel>(entry->code);
}

bool KernelSet::has_failed(const std::string& text) const {
  const Entry* entry = look_up(text);
  return entry && !entry->code;
}

std::shared_ptr<KernelSet> KernelSet::with(Of of, const std::string& text,
                                           std::shared_ptr<const void> code) const {
  auto next = std::make_shared<KernelSet>(*this);
  ++next->generation_;
  auto part = std::make_shared<Part>();
  const auto added = part->try_emplace(text, Entry{of, std::move(code)}).first;
  ++next->count_of(added->second);
  for (auto& parts = next->parts_; !parts.empty() && parts.back()->size() <= part->size();
       parts.pop_back())
    part->insert(parts.back()->begin(), parts.back()->end());
  next->parts_.push_back(std::move(part));
  return next;
}

std::shared_ptr<KernelSet> KernelSet::without(const std::string& text) const {
  auto next = std::make_shared<KernelSet>(*this);
  ++next->generation_;
  for (auto& part : next->parts_) {
    const auto found = part->find(text);
    if (found == part->end()) continue;
    --next->count_of(found->second);
    auto rest = std::make_shared<Part>(*part);
    rest->erase(text);
    part = std::move(rest);
    break;
  }
  std::erase_if(next->parts_, [](const auto& part) { return part->empty(); });
  return next;
}

}  // namespace gradus::fusion
