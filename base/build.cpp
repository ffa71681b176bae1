#include "gradus/build.h"

#include <array>

#include <fmt/format.h>

namespace gradus {

namespace {

struct PartRecord {
  Part part;
  std::string_view name, option;
  bool here;
};
constexpr std::array parts{
    PartRecord{Part::llvm, "LLVM", "GRADUS_LLVM", GRADUS_HAS_LLVM},
    PartRecord{Part::onednn, "oneDNN", "GRADUS_ONEDNN", GRADUS_HAS_ONEDNN},
    PartRecord{Part::openblas, "OpenBLAS", "GRADUS_OPENBLAS", GRADUS_HAS_OPENBLAS},
    PartRecord{Part::onnx, "ONNX", "GRADUS_ONNX", GRADUS_HAS_ONNX},
};

const PartRecord& record(Part part) { return parts[static_cast<size_t>(part)]; }

}  // namespace

bool has_part(Part part) { return record(part).here; }

std::string why_missing(Part part) {
  const PartRecord& r = record(part);
  return fmt::format("this build has no {} (it was configured with {}=OFF)", r.name, r.option);
}

std::string why_no_plugins() {
  if (!GRADUS_IS_PORTABLE) return "";
  return "the portable program has Gradus inside of itself and shows none of it to others, so a "
         "plug-in would register with another copy; use an installed Gradus (docs/embedding.md)";
}

std::string left_out() {
  std::string text;
  for (const PartRecord& r : parts)
    if (!r.here) text += fmt::format("{}{}", text.empty() ? "without " : ", ", r.name);
  return text;
}

}  // namespace gradus
