// The importers, a line for each: io/NAME/, or io/NAME.cpp, defines `NAME_importer`.
#pragma once

#include "gradus/import.h"

#define GRADUS_IMPORTERS(X) \
  X(text)                   \
  X(onnx)                   \
  X(pt2)

namespace gradus {

#define GRADUS_DECLARE(name) extern const Importer name##_importer;
GRADUS_IMPORTERS(GRADUS_DECLARE)
#undef GRADUS_DECLARE

}  // namespace gradus
