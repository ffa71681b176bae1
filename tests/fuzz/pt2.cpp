// Any bytes as an archive of torch.export, and as the model.json of one, are a program or are
// refused with an Error.
#include "gradus/pt2.h"

#include "tests/pt2/archive_bytes.h"

using namespace gradus;

namespace {

void import(const std::string& bytes) {
  try {
    pt2::import_bytes(test::bytes_of(bytes), "fuzz.pt2");
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  import(bytes);
  import(test::archive_of(bytes));
  return 0;
}
