// Any bytes are a model that becomes a sound program, or are refused with an Error.
#include "gradus/onnx.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gradus/text.h"

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  onnx::Import model;
  try {
    model = onnx::import_bytes({reinterpret_cast<const char*>(data), size}, "fuzz.onnx");
  } catch (const Error&) {
    return 0;
  } catch (const ResourceError&) {
    return 0;
  }
  // What was imported holds every invariant, and prints as itself.
  ir::verify(model.program);
  const std::string printed = ir::print(model.program);
  if (ir::print(ir::parse(printed, "printed.ir").program()) != printed) std::abort();
  return 0;
}
