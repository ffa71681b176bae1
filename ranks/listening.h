// What a rank needs that waits for the others by other means than a call of its group.
#pragma once

#include "gradus/communicator.h"

namespace gradus::ranks {

// A communicator may have it beside the interface of gradus/communicator.h.
class Listening {
 public:
  virtual ~Listening() = default;
  // The time limit of a call.
  virtual std::chrono::milliseconds limit() const = 0;
  // Throws an Error if the group has failed or another rank has called `abandon`. Returns at once.
  virtual void listen() = 0;
};

// The limit of a group of which nothing is known.
inline constexpr std::chrono::milliseconds usual_limit = std::chrono::minutes(10);

inline std::chrono::milliseconds limit_of(const Communicator& ranks) {
  const auto* listening = dynamic_cast<const Listening*>(&ranks);
  return listening ? listening->limit() : usual_limit;
}

inline void listen_to(Communicator& ranks) {
  if (auto* listening = dynamic_cast<Listening*>(&ranks)) listening->listen();
}

}  // namespace gradus::ranks
