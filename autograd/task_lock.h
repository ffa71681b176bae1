// The lock of a task's data, for graph_task.cpp and task_run.cpp.
#pragma once

#include "autograd/graph_task.h"

namespace gradus::autograd {

class GraphTask::Lock {
 public:
  explicit Lock(const GraphTask& task) : lock_(task.mutex_, std::defer_lock) {
    needed_ = !task.exclusive_;
    acquire();
  }
  void acquire() {
    if (needed_) lock_.lock();
  }
  void release() {
    if (needed_) lock_.unlock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
  bool needed_;
};

}  // namespace gradus::autograd
