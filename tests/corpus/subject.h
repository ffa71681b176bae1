// What the corpus' tests run: the programs of tests/text, derived as far as their cases say.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::corpus {

using Results = std::vector<std::vector<Tensor>>;  // by stage

// A case of a fixture, ready to run.
struct Subject {
  ir::Graph graph;  // with all the stages
  std::shared_ptr<const Code> code;
  // By stage: what the case gives by name, and random tensors for the rest.
  std::vector<std::vector<Tensor>> inputs;
  ir::DifferentiateOptions options;  // how the stages were derived
};

// The cases that say what the results are, not what the error is.
std::vector<Subject> subjects(const ir::Fixture& fixture);
// Derived as the case says, or else up to the order of its gradcheck. Throws Error for names that
// the derived program does not have.
Subject make_subject(const ir::Fixture& fixture, const ir::Case& c);

// Another program with the subject's stage 0, derived as the subject was.
Subject derived(const Subject& subject, const ir::Graph& graph);

// What the case gives: tensors, random ones, sizes.
InputSources sources_of(const ir::Case& c);

// How the results differ from what the case expects.
std::vector<std::string> unexpected(const ir::Case& c, const Subject& subject,
                                    const Results& results);

// Runs the stages that are left. `options` goes to each.
Results run_all(State& state, const Subject& subject, const RunOptions& options = {});
Results run_all(const Subject& subject);

// Where results differ in a bit, or in what is undefined; empty if nowhere.
std::string difference(const Subject& subject, const Results& expected, const Results& actual);

// The fixtures' files, sorted: by name relative to tests/text, or as examples/NAME.ir. Functions
// that they name must be registered.
std::vector<std::string> fixture_files();
ir::Fixture load(const std::string& file);

// Ways to run a fixture, each a test for every file.
struct Disguise {
  const char* name;
  void (*run)(const ir::Fixture& fixture);
  // Of the fixtures of single operators, one in so many: what it tests lies not in operators.
  size_t one_in = 1;
};
extern const std::vector<Disguise> disguises;

}  // namespace gradus::corpus
