// gradus devices
#include "gradus/devices.h"

#include "tools/cli.h"
#include "tools/output.h"

namespace gradus::cli {

void devices() { put(describe_devices()); }

}  // namespace gradus::cli
