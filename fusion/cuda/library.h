// NVIDIA's libraries, opened while running: nothing links them, and none has to be there.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::fusion::cuda {

// How a library is called, the newest first, and where Python's wheels have it.
struct LibraryNames {
  std::string_view what;                     // "NVRTC"
  std::span<const std::string_view> files;   // "libnvrtc.so.13", ..
  std::span<const std::string_view> wheels;  // folders in site-packages: "nvidia/cu13/lib", ..
  std::string_view advice;                   // what to do if there is none
  // A variable of the environment that names the file: then no other file will do. Null: none.
  const char* variable = nullptr;
};

// What was found of a library, for people and for programs. Opened libraries stay for the process:
// they have threads and exit handlers of their own.
struct Library {
  std::string what;
  void* handle = nullptr;  // null: not there, or not usable
  std::string path;        // of the file that was opened
  std::string version;     // filled in by who asks the library
  std::string fault;       // why it is not usable, and what to do; empty if it is

  explicit operator bool() const { return handle != nullptr; }
  // A function of it; null, with `fault` set and `handle` null, if there is no such.
  void* function(const char* name);
};

// Opens the file that the environment names. Otherwise looks in the folders that are named by
// GRADUS_CUDA, CUDA_PATH and CUDA_HOME, then where the system's loader looks, then under
// /usr/local/cuda, then in the wheels of Python environments. Throws nothing.
Library open_library(const LibraryNames& names);

// The folders that open_library looks through, those that are there.
std::vector<std::string> library_folders(std::span<const std::string_view> wheels);

}  // namespace gradus::fusion::cuda
