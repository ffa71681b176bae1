// The version of this release.
#pragma once

#define GRADUS_VERSION_MAJOR 0
#define GRADUS_VERSION_MINOR 1
#define GRADUS_VERSION_PATCH 0
#define GRADUS_VERSION "0.1.0"
