// Groups of ranks in Python.
#include <chrono>

#include <nanobind/stl/shared_ptr.h>

#include "gradus/communicator.h"
#include "python/bindings.h"
#include "python/context.h"

namespace gradus::python {

using nb::literals::operator""_a;

namespace {

using Ranks = std::shared_ptr<Communicator>;

std::chrono::milliseconds milliseconds_of(double seconds) {
  if (!(seconds > 0) || seconds > 1e9)
    throw Error("time_limit is {} s; it must be more than 0 and at most 1e9", seconds);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3) + 1);
}

// `comm` is None, or a communicator of mpi4py's.
Ranks open_mpi_ranks(nb::handle comm, double time_limit, bool rank_order, int color,
                     const std::string& library) {
  MpiOptions options{milliseconds_of(time_limit), rank_order, library};
  if (comm.is_none()) return unlocked([&] { return mpi_ranks(options, color); });
  if (!nb::hasattr(comm, "py2f"))
    throw Error("comm is no communicator of mpi4py's (it has no py2f); leave it out for all ranks");
  const auto handle = nb::cast<int64_t>(comm.attr("py2f")());
  return unlocked([&] { return mpi_ranks_of(handle, options); });
}

}  // namespace

void bind_ranks(nb::module_& m) {
  nb::class_<Communicator>(
      m, "Ranks",
      "One rank's end of a group of ranks, for gradus.bind_group. For one thread at a time.")
      .def_prop_ro("rank", &Communicator::rank, "This one's number, from 0.")
      .def_prop_ro("size", &Communicator::size, "How many ranks there are.")
      .def(
          "abandon",
          [](Communicator& c, const std::string& reason) { unlocked([&] { c.abandon(reason); }); },
          "reason"_a, "Ends the calls of all other ranks with an Error that says this.");
  m.def("single_rank", single_rank, "A group of one rank.");
  m.def(
      "thread_ranks",
      [](int size, double time_limit) { return thread_ranks(size, milliseconds_of(time_limit)); },
      "size"_a, "time_limit"_a = 600.0,
      "The ends of a group whose ranks are threads of this process; a call that waits for longer "
      "than `time_limit` seconds raises Error.");
  m.def(
      "mpi_ranks", open_mpi_ranks, "comm"_a = nb::none(), "time_limit"_a = 600.0,
      "rank_order"_a = false, "color"_a = 0, "library"_a = "",
      nb::sig("def mpi_ranks(comm: typing.Any = None, time_limit: float = 600.0, rank_order: bool "
              "= False, color: int = 0, library: str = \"\") -> Ranks"),
      "The processes that mpirun started, those of one `color`, or those of a communicator of "
      "mpi4py's. All of them make this call. `rank_order`: sums are added in the order of ranks. "
      "`library`: the MPI library to open.");
  m.def(
      "bind_group",
      [](const std::string& name, Ranks ranks, nb::handle context) {
        rank_groups(*context_from(context)).bind(name, std::move(ranks));
      },
      "name"_a, "ranks"_a.none(), "context"_a = nb::none(),
      nb::sig("def bind_group(name: str, ranks: Ranks | None, context: Context | None = None) -> "
              "None"),
      "What the group is that programs name so: for states of this context that are made from now "
      "on. None takes it away.");
}

}  // namespace gradus::python
