// All of Gradus that a program which embeds it needs: #include "gradus/gradus.h".
//
// Names live in namespaces gradus, gradus::ir, gradus::ops, gradus::autograd and gradus::onnx. What
// is wrong with a program or its inputs is thrown as gradus::Error, what the machine lacks as
// gradus::ResourceError. Each header says its contracts; who compiles often includes the parts that
// are needed.
#pragma once

// Errors, and what a run works with: memory, workers, a log.
#include "base/context.h"
#include "base/error.h"
#include "base/version.h"

// Tensors, and their files.
#include "tensor/dlpack.h"
#include "tensor/npy.h"
#include "tensor/npz.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"
#include "tensor/tensor_file.h"

// Programs: text, calls, derivatives.
#include "ir/graph.h"
#include "ir/passes/builder.h"
#include "ir/passes/directions.h"
#include "ir/passes/lift_constants.h"
#include "ir/passes/passes.h"
#include "ir/passes/rematerialize.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/text/verifier.h"

// Variables, functions of one's own, and the engine.
#include "autograd/custom_function.h"
#include "autograd/device_streams.h"
#include "autograd/engine.h"
#include "autograd/opaque_function.h"
#include "autograd/operators.h"
#include "autograd/variable.h"

// Compiled programs and their runs.
#include "interpreter/code.h"
#include "interpreter/devices.h"
#include "interpreter/gradcheck.h"
#include "interpreter/inputs.h"
#include "interpreter/plugin.h"
#include "interpreter/staged_function.h"
#include "interpreter/state.h"
#include "interpreter/trace.h"

// Calls of opaque functions; plans and code, for tools that show them.
#include "gradus/call_function.h"
#include "gradus/inspect.h"

// Operators of one's own.
#include "ops/added.h"
#include "ops/registry.h"

// Programs from files of any format; ONNX models.
#include "io/import.h"
#include "io/onnx/onnx.h"
