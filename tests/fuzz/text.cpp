// Any text is a program that prints and reads back, or is refused with an Error.
#include "gradus/text.h"

#include <cstdint>
#include <cstdlib>

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  ir::Fixture fixture;
  try {
    fixture = ir::parse_fixture(text, "fuzz.ir");
  } catch (const Error&) {
    return 0;
  } catch (const ResourceError&) {
    return 0;
  }
  const std::string printed = ir::print(fixture.module);
  // What was read holds every invariant, and prints as itself.
  for (const auto& graph : fixture.module.graphs) ir::verify(*graph);
  if (ir::print(ir::parse(printed, "printed.ir")) != printed) std::abort();
  return 0;
}
