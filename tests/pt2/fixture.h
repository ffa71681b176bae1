// An archive of torch.export beside what eager PyTorch computes for it.
#pragma once

#include "gradus/files.h"
#include "gradus/import.h"
#include "tests/corpus/subject.h"

namespace gradus::test {

// tests/pt2/data/NAME.pt2 and NAME.npz, whose keys are
//   in.X, out.I, ct.J       inputs, results, and a cotangent of each floating result
//   g1.in.X, g1.param.P     the gradient of the sum of ct.J * result J
//   g2.in.X, g2.param.P     that of the sum of squares of all g1
//   buffer_after.B, input_after.X   what the call writes
//   alt.…                   the same for inputs of other sizes
// and, for models of energies, forces, fref, gl.… (the gradient of mean((forces - fref)^2)), v and
// hvp (the Hessian of the energies' sum with respect to `pos`, times v). PyTorch 2.15 is wrong in
// the second derivative of `while_loop`: g2 of hop_while_loop is that of its steps written out.
class ArchiveFixture {
 public:
  explicit ArchiveFixture(std::string name);

  const std::string& name() const { return name_; }
  bool is_energy() const { return has("forces"); }
  bool has_other_sizes() const { return has("alt.out.0"); }
  int order() const;
  const ir::Graph& program() const { return imported_.module.program(); }
  // The stages, and what each takes. `prefix` is "" or "alt.". Of energies the second cotangent is
  // the loss's, or v.
  corpus::Subject subject(const std::string& prefix, bool along_v = false) const;
  // Where results are not the reference's; `along_v` as above.
  std::vector<std::string> differences(const corpus::Subject& subject,
                                       const corpus::Results& results, const std::string& prefix,
                                       bool along_v = false) const;

 private:
  bool has(const std::string& key) const { return reference_.contains(key); }
  const Tensor& at(const std::string& key) const;
  Tensor value_of(const std::string& input, const std::string& prefix) const;
  std::vector<Tensor> inputs(const corpus::Subject& s, size_t stage, const std::string& prefix,
                             bool along_v) const;
  Tensor second_cotangent(const std::string& input, const std::string& prefix, bool along_v) const;
  std::string key_of(const std::string& group, const std::string& input) const;
  std::string expected_key(const corpus::Subject& s, size_t stage, size_t i,
                           const std::string& prefix, bool along_v) const;
  double greatest(const std::string& key) const;

  std::string name_;
  NamedTensors reference_;
  ImportedProgram imported_;
  std::vector<size_t> outputs_;  // of result i, its number among floating ones, or none
};

// All archives, by name.
std::vector<std::string> archive_names();
std::string archive_path(const std::string& name);

}  // namespace gradus::test
