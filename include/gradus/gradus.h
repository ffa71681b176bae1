// Includes all headers that a program needs: #include "gradus/gradus.h".
//
// The namespaces are gradus, gradus::ir, gradus::ops, gradus::autograd and gradus::onnx. Errors in
// a program or its inputs throw gradus::Error; a lack of resources throws gradus::ResourceError.
// Each header documents its contracts. Single headers compile faster.
#pragma once

// Errors, and the resources of a run: memory, workers, a log.
#include "gradus/context.h"
#include "gradus/error.h"
#include "gradus/version.h"

// Tensors and their files.
#include "gradus/dlpack.h"
#include "gradus/files.h"
#include "gradus/tensor.h"

// Programs: text, construction by calls, derivatives.
#include "gradus/builder.h"
#include "gradus/graph.h"
#include "gradus/passes.h"
#include "gradus/text.h"

// Variables, custom functions, and the engine.
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

// Plans and code of kernels, for tools that show them.
#include "gradus/inspect.h"

// Custom operators.
#include "gradus/registry.h"

// Importers of programs; ONNX models.
#include "gradus/import.h"
#include "gradus/onnx.h"
