// Ways to run a fixture by fused kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// Whether kernels with registers of so many bits run on this machine; 0: of any.
bool has_kernels(unsigned vector_bits = 0);
// How wide they are here.
std::vector<unsigned> kernel_widths();

// A context that fuses whatever can be grouped, kept for the process: what one program has compiled
// serves the next; and other processes, where GRADUS_TEST_KERNELS names a folder. 0 bits: the
// widest there are.
std::shared_ptr<Context> fusing_context(int workers, unsigned vector_bits = 0);

// All stages, their kernels compiled first; and with no kernels at all.
Results run_fused(const Subject& subject, const std::shared_ptr<Context>& context);
Results run_unfused(const Subject& subject);

// Where the bits of the fused runs differ from those of the unfused; empty if nowhere. Runs with
// vectors of every width that runs here, each with one worker and with four.
std::string fused_difference(const Subject& subject);

// A folder of kernels, gone with it. Contexts that fuse whatever can be grouped may begin there.
class KernelFolder {
 public:
  KernelFolder();
  ~KernelFolder();
  KernelFolder(const KernelFolder&) = delete;
  // What another process would make of it.
  std::shared_ptr<Context> open(int workers = 1, unsigned vector_bits = 0) const;
  // One entry in four loses its end, or has a byte changed. Returns how many.
  size_t damage() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs `all`, which gives whatever went wrong, with kernels that are compiled, that come from a
// folder, and that come from one in which some entries are damaged; with one worker where kernels
// are compiled, with four where they are loaded. Says what went wrong, of the kernels' statistics
// as well.
std::string through_a_folder(
    unsigned vector_bits, const std::function<std::string(const std::shared_ptr<Context>&)>& all);
// The same of programs: where their bits differ from those of the unfused runs.
std::string through_a_folder(unsigned vector_bits, const std::vector<Subject>& subjects);

// What a folder gives back does not depend on what made it: each width and dtype has a part of the
// programs, of which there are four.
struct FolderPart {
  unsigned bits;
  DType dtype;
  size_t part;
};
inline constexpr FolderPart folder_parts[] = {
    {256, DType::f64, 0}, {256, DType::f32, 1}, {512, DType::f64, 2}, {512, DType::f32, 3}};
std::string name_of_part(const testing::TestParamInfo<FolderPart>& info);

// Fixtures: by kernels of every width, and by kernels that come from a folder.
void fused(const ir::Fixture& fixture);
void fused_from_disk(const ir::Fixture& fixture);
// With all sizes known: by functions of whole stages, where they have loops or products.
void whole_stages(const ir::Fixture& fixture);

}  // namespace gradus::corpus
