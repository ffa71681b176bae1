// gradus devices
#include "devices/cuda/devices.h"

#include "tools/cli.h"
#include "tools/output.h"

namespace gradus::cli {

void devices() { put(fusion::cuda::to_string(fusion::cuda::probe_devices())); }

}  // namespace gradus::cli
