// All of Gradus that a program which embeds it needs: #include "gradus/gradus.h".
//
// Names live in namespaces gradus, gradus::ir, gradus::ops, gradus::autograd and gradus::onnx. What
// is wrong with a program or its inputs is thrown as gradus::Error, what the machine lacks as
// gradus::ResourceError. Each header says its contracts; who compiles often includes the parts that
// are needed.
#pragma once

// Errors, and what a run works with: memory, workers, a log.
#include "gradus/context.h"
#include "gradus/error.h"
#include "gradus/version.h"

// Tensors, and their files.
#include "gradus/dlpack.h"
#include "gradus/files.h"
#include "gradus/tensor.h"

// Programs: text, calls, derivatives.
#include "gradus/builder.h"
#include "gradus/graph.h"
#include "gradus/passes.h"
#include "gradus/text.h"

// Variables, functions of one's own, and the engine.
#include "gradus/apply.h"
#include "gradus/custom_function.h"
#include "gradus/device_streams.h"
#include "gradus/engine.h"
#include "gradus/opaque_function.h"
#include "gradus/variable.h"

// Compiled programs and their runs.
#include "gradus/code.h"
#include "gradus/devices.h"
#include "gradus/gradcheck.h"
#include "gradus/inputs.h"
#include "gradus/plugin.h"
#include "gradus/staged_function.h"
#include "gradus/state.h"
#include "gradus/trace.h"

// Calls of opaque functions; plans and code, for tools that show them.
#include "gradus/inspect.h"

// Operators of one's own.
#include "gradus/registry.h"

// Programs from files of any format; ONNX models.
#include "gradus/import.h"
#include "gradus/onnx.h"
