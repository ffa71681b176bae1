// MPI, opened at run time: functions and handles as the library that is found has them. No header
// of MPI's is needed to build this.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/dtype.h"

namespace gradus::ranks {

// MPICH's handles are ints, Open MPI's are pointers. An int travels in the lower half: on
// little-endian machines functions that take or store an int see the same bits.
using MpiHandle = uintptr_t;

// One for each process, never closed. All functions return 0 where nothing is wrong.
struct MpiLibrary {
  std::string name;  // of the file
  bool is_open_mpi = false;
  MpiHandle world = 0, sum = 0, errors_return = 0, request_null = 0;
  int any_source = 0;
  void* status_ignore = nullptr;

  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*initialized)(int*) = nullptr;
  int (*finalized)(int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*error_string)(int, char*, int*) = nullptr;
  int (*comm_rank)(MpiHandle, int*) = nullptr;
  int (*comm_size)(MpiHandle, int*) = nullptr;
  int (*comm_dup)(MpiHandle, MpiHandle*) = nullptr;
  int (*comm_split)(MpiHandle, int, int, MpiHandle*) = nullptr;
  int (*comm_free)(MpiHandle*) = nullptr;
  int (*comm_set_errhandler)(MpiHandle, MpiHandle) = nullptr;
  int (*isend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*irecv)(void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*recv)(void*, int, MpiHandle, int, int, MpiHandle, void*) = nullptr;
  int (*iprobe)(int, int, MpiHandle, int*, void*) = nullptr;
  int (*test)(MpiHandle*, int*, void*) = nullptr;
  int (*iallreduce)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle, MpiHandle*) = nullptr;
  int (*ireduce_scatter_block)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle,
                               MpiHandle*) = nullptr;
  int (*iallgather)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle,
                    MpiHandle*) = nullptr;
  int (*ialltoall)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle,
                   MpiHandle*) = nullptr;
  int (*ibcast)(void*, int, MpiHandle, int, MpiHandle, MpiHandle*) = nullptr;
  MpiHandle (*comm_f2c)(int) = nullptr;  // null: the same number

  // The datatype of elements that are added, and of those that are only moved.
  MpiHandle type_of(DType dtype) const;
  MpiHandle bits_of(DType dtype) const;

  MpiHandle doubles = 0, floats = 0;
  MpiHandle signed_ints[4] = {}, unsigned_ints[4] = {};  // of 1, 2, 4, 8 bytes
};

// Opens it at the first call: `wanted`, or what MpiOptions::library says of none. Throws Error
// where there is none, or where another one has been opened before.
const MpiLibrary& mpi_library(const std::string& wanted);

}  // namespace gradus::ranks
