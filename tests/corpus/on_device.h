// Programs on cuda:0, for the reference cases and the samples of operators.
#pragma once

#include <memory>
#include <string>

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// Another device than cuda:0 for these tests: one behind an interpreter.
void set_test_device(std::shared_ptr<Context> context);

// Why there is no device to run on; empty if there is one.
std::string why_no_device();
// "device", or what says that such a test is skipped.
const char* device_test_name();

// All stages on the device, their kernels compiled first and kept in
// $GRADUS_CUDA_TEST_KERNELS. Throws ResourceError where there is no device.
Results run_on_device(const Subject& subject);

// What the device's results are apart from the CPU's: empty if each element is as near as the
// orders of a product's sum allow, by its tensor's largest one (of f64 1e-12, of f32 1e-5; others
// have the same bits). Kernels of groups give the CPU's bits; libraries of the device that multiply
// add in orders of their own.
std::string device_difference(const Subject& subject, const Results& cpu, const Results& device);

}  // namespace gradus::corpus
