// The weights of an archive, as torch takes them back.
#include <algorithm>

#include "gradus/messages.h"
#include "gradus/pt2.h"
#include "io/pt2/archive.h"

namespace gradus::pt2 {

namespace {

const StoredTensor& replaced(const Archive& archive, const std::string& name, const Tensor& value) {
  const std::vector<const StoredTensor*> state = archive.state();
  auto it = std::ranges::find(state, name, [](const StoredTensor* t) { return t->name; });
  if (it == state.end())
    throw Error("{}: the state_dict has no '{}'", archive.name(), printable(name));
  const StoredTensor& t = **it;
  if (value.dtype() != t.dtype || !std::ranges::equal(value.shape(), t.sizes))
    throw Error("{}: '{}' is {}[{}], and its value is {}[{}]", archive.name(), printable(name),
                name_of(t.dtype), fmt::join(t.sizes, ", "), name_of(value.dtype()),
                fmt::join(value.shape(), ", "));
  return t;
}

}  // namespace

NamedTensors state_dict(const std::string& path, const NamedTensors& values) {
  const Archive archive(path);
  NamedTensors all;
  for (const StoredTensor* t : archive.state()) all.emplace(t->name, archive.read(*t));
  for (const auto& [name, value] : values) {
    const StoredTensor& own = replaced(archive, name, value);
    for (const StoredTensor* t : archive.state())
      if (t->name == name || t->is_tied_to(own)) all.insert_or_assign(t->name, value);
  }
  return all;
}

}  // namespace gradus::pt2
