// Messages for whoever embeds Gradus. The library itself never prints.
#pragma once

#include <functional>
#include <string_view>

#pragma GCC visibility push(default)

namespace gradus {

enum class LogLevel { debug, info, warning };

// Called on any thread, never while a lock of Gradus is held. Null drops the messages.
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace gradus

#pragma GCC visibility pop
