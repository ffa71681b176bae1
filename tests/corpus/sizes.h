// Programs with numbers in the place of sizes' names.
#pragma once

#include <functional>

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// What a dimension's name stands for, if that is known.
using SizeOf = std::function<std::optional<int64_t>(std::string_view)>;

ir::Dim with_sizes(const ir::Dim& d, const SizeOf& size_of);
// Whether there were any names.
bool set_sizes(ir::Literal& l, const SizeOf& size_of);
// Stage 0 of the subject's program as variables see it, for whom every size is known, with the
// stages that are derived of that.
Subject with_known_sizes(const Subject& subject);
// Whether it can be said so: its stages are derived of stage 0, and it has no handles.
bool can_know_sizes(const Subject& subject);

}  // namespace gradus::corpus
