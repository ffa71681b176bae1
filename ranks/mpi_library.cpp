#include "ranks/mpi_library.h"

#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <dlfcn.h>

#include "gradus/error.h"

namespace gradus::ranks {

namespace {

static_assert(std::endian::native == std::endian::little, "see MpiHandle");

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

// In the order in which they are tried.
std::vector<std::string> library_names() {
  if (const char* named = std::getenv("GRADUS_MPI_LIBRARY"); named && *named) return {named};
  const std::vector<std::string> open{"libmpi.so.40"}, mpich{"libmpich.so.12", "libmpi.so.12"};
  const bool mpich_first =
      !is_set("OMPI_COMM_WORLD_SIZE") && (is_set("PMI_SIZE") || is_set("PMI_RANK"));
  std::vector<std::string> all = mpich_first ? mpich : open;
  const std::vector<std::string>& others = mpich_first ? open : mpich;
  all.insert(all.end(), others.begin(), others.end());
  for (const std::string& name : all)  // one that the program has already
    if (void* loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
      dlclose(loaded);
      return {name};
    }
  return all;
}

void* open_first(const std::vector<std::string>& names, std::string& found) {
  std::string reasons;
  for (const std::string& name : names) {
    // Open MPI's parts look for its functions among those that all see.
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      found = name;
      return library;
    }
    reasons += fmt::format("\n  {}", dlerror());
  }
  throw Error(
      "there is no MPI library; install Open MPI or MPICH, or name its file in "
      "GRADUS_MPI_LIBRARY:{}",
      reasons);
}

class Symbols {
 public:
  Symbols(void* library, const std::string& name) : library_(library), name_(name) {}
  void* find(const char* symbol) const { return dlsym(library_, symbol); }
  void* get(const char* symbol) const {
    if (void* found = find(symbol)) return found;
    throw Error("{} is no MPI library that is known here: it has no {}", name_, symbol);
  }
  template <class F>
  void get(F*& function, const char* symbol) const {
    function = reinterpret_cast<F*>(get(symbol));
  }
  MpiHandle handle(const char* symbol) const { return reinterpret_cast<MpiHandle>(get(symbol)); }

 private:
  void* library_;
  const std::string& name_;
};

// Open MPI 4.1's mpi.h.
void fill_open_mpi(MpiLibrary& m, const Symbols& symbols) {
  m.world = symbols.handle("ompi_mpi_comm_world");
  m.sum = symbols.handle("ompi_mpi_op_sum");
  m.errors_return = symbols.handle("ompi_mpi_errors_return");
  m.request_null = symbols.handle("ompi_request_null");
  m.any_source = -1;
  m.status_ignore = nullptr;
  m.doubles = symbols.handle("ompi_mpi_double");
  m.floats = symbols.handle("ompi_mpi_float");
  const char* const names[][2] = {{"ompi_mpi_int8_t", "ompi_mpi_uint8_t"},
                                  {"ompi_mpi_int16_t", "ompi_mpi_uint16_t"},
                                  {"ompi_mpi_int32_t", "ompi_mpi_uint32_t"},
                                  {"ompi_mpi_int64_t", "ompi_mpi_uint64_t"}};
  for (size_t k = 0; k < 4; ++k) {
    m.signed_ints[k] = symbols.handle(names[k][0]);
    m.unsigned_ints[k] = symbols.handle(names[k][1]);
  }
  symbols.get(m.comm_f2c, "MPI_Comm_f2c");
}

// The numbers of MPICH's ABI (https://www.mpich.org/abi), which Intel MPI and MVAPICH share.
void fill_mpich(MpiLibrary& m) {
  m.world = 0x44000000;
  m.sum = 0x58000003;
  m.errors_return = 0x54000001;
  m.request_null = 0x2c000000;
  m.any_source = -2;
  m.status_ignore = reinterpret_cast<void*>(1);
  m.doubles = 0x4c00080b;
  m.floats = 0x4c00040a;
  constexpr MpiHandle with_sign[] = {0x4c000137, 0x4c000238, 0x4c000439, 0x4c00083a};
  constexpr MpiHandle without[] = {0x4c00013b, 0x4c00023c, 0x4c00043d, 0x4c00083e};
  for (size_t k = 0; k < 4; ++k) {
    m.signed_ints[k] = with_sign[k];
    m.unsigned_ints[k] = without[k];
  }
}

void fill_functions(MpiLibrary& m, const Symbols& symbols) {
  symbols.get(m.init_thread, "MPI_Init_thread");
  symbols.get(m.initialized, "MPI_Initialized");
  symbols.get(m.finalized, "MPI_Finalized");
  symbols.get(m.finalize, "MPI_Finalize");
  symbols.get(m.error_string, "MPI_Error_string");
  symbols.get(m.comm_rank, "MPI_Comm_rank");
  symbols.get(m.comm_size, "MPI_Comm_size");
  symbols.get(m.comm_dup, "MPI_Comm_dup");
  symbols.get(m.comm_split, "MPI_Comm_split");
  symbols.get(m.comm_free, "MPI_Comm_free");
  symbols.get(m.comm_set_errhandler, "MPI_Comm_set_errhandler");
  symbols.get(m.isend, "MPI_Isend");
  symbols.get(m.irecv, "MPI_Irecv");
  symbols.get(m.recv, "MPI_Recv");
  symbols.get(m.iprobe, "MPI_Iprobe");
  symbols.get(m.test, "MPI_Test");
  symbols.get(m.iallreduce, "MPI_Iallreduce");
  symbols.get(m.ireduce_scatter_block, "MPI_Ireduce_scatter_block");
  symbols.get(m.iallgather, "MPI_Iallgather");
  symbols.get(m.ialltoall, "MPI_Ialltoall");
  symbols.get(m.ibcast, "MPI_Ibcast");
}

MpiLibrary open_library(const std::string& wanted) {
  MpiLibrary m;
  void* library =
      open_first(wanted.empty() ? library_names() : std::vector<std::string>{wanted}, m.name);
  const Symbols symbols(library, m.name);
  int (*version)(char*, int*) = nullptr;
  symbols.get(version, "MPI_Get_library_version");
  char text[8192] = {};
  int length = 0;
  version(text, &length);
  m.is_open_mpi = symbols.find("ompi_mpi_comm_world") != nullptr;
  const std::string_view says(text);
  if (!m.is_open_mpi && says.find("MPICH") == std::string_view::npos &&
      says.find("Intel") == std::string_view::npos &&
      says.find("MVAPICH") == std::string_view::npos)
    throw Error("{} is neither Open MPI nor of MPICH's ABI: {}", m.name, says.substr(0, 80));
  if (m.is_open_mpi)
    fill_open_mpi(m, symbols);
  else
    fill_mpich(m);
  fill_functions(m, symbols);
  return m;
}

size_t place_of(size_t bytes) { return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3; }

}  // namespace

MpiHandle MpiLibrary::type_of(DType dtype) const {
  if (dtype == DType::f64) return doubles;
  if (dtype == DType::f32) return floats;
  const bool with_sign =
      dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
  return (with_sign ? signed_ints : unsigned_ints)[place_of(size_of(dtype))];
}

MpiHandle MpiLibrary::bits_of(DType dtype) const { return unsigned_ints[place_of(size_of(dtype))]; }

const MpiLibrary& mpi_library(const std::string& wanted) {
  static std::mutex mutex;
  static const MpiLibrary* opened = nullptr;
  std::lock_guard guard(mutex);
  if (!opened) opened = new MpiLibrary(open_library(wanted));
  if (!wanted.empty() && wanted != opened->name)
    throw Error("'{}' cannot be opened: this process uses {} already", wanted, opened->name);
  return *opened;
}

}  // namespace gradus::ranks
