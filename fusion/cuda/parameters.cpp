#include "fusion/cuda/parameters.h"

namespace gradus::fusion::cuda {

Parameters& Parameters::in(std::string_view type, std::string_view name,
                           std::optional<Place> place) {
  return out(fmt::format("const {}", type), name, place);
}

Parameters& Parameters::out(std::string_view type, std::string_view name,
                            std::optional<Place> place) {
  text_ += fmt::format("  {}* {};\n", type, name);
  if (place)
    arguments_.pointers.push_back({arguments_.words.size(), place->argument, place->offset});
  arguments_.words.push_back(0);
  return *this;
}

Parameters& Parameters::add(std::string_view name, int64_t value) {
  text_ += fmt::format("  i64 {};\n", name);
  arguments_.words.push_back(static_cast<uint64_t>(value));
  return *this;
}

Parameters& Parameters::add(std::string_view name, std::span<const int64_t> list) {
  text_ += fmt::format("  i64 {}[{}];\n", name, list.size());
  arguments_.words.insert(arguments_.words.end(), list.begin(), list.end());
  return *this;
}

Parameters& Parameters::add(std::string_view type, std::string_view name,
                            std::span<const Parameters> list) {
  text_ += fmt::format("  {} {}[{}];\n", type, name, list.size());
  for (const Parameters& p : list) {
    GRADUS_CHECK(p.arguments_.pointers.empty());
    arguments_.words.insert(arguments_.words.end(), p.arguments_.words.begin(),
                            p.arguments_.words.end());
  }
  return *this;
}

}  // namespace gradus::fusion::cuda
