// SPDX-License-Identifier: Apache-2.0
// A plug-in that passes every call on to a program of any language (docs/worker.md). It is loaded
// by the kernel host like any other, so that the runner sees no difference: where the program dies
// in a call, the host dies the same death.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "attest/declaration.hpp"
#include "tools/bridge/call_message.hpp"
#include "tools/bridge/child.hpp"

namespace attest {
namespace {

/// The verdict `junk_status`: attest/plugin.h gives no number above 4 a meaning.
constexpr attest_status kNonsense = 1000;

struct Bridge {
  std::unique_ptr<Child> child;
  WorkerCommand command;
  WorkerAnswer hello;   ///< the first one: what the plug-in's table says
  std::string trouble;  ///< why there is no program to talk to
  std::uint64_t next_id = 0;

  /// "" or why the program does not work.
  std::string greet() {
    child = std::make_unique<Child>(command);
    if (const auto why = child->start()) return *why;
    WorkerRequest request;
    request.id = next_id++;
    request.operation = "hello";
    request.attributes = {{"protocol", static_cast<std::int64_t>(kWorkerProtocol)}};
    std::string text;
    switch (child->exchange(write_request(request, command.format), text)) {
      case Child::Outcome::answered: break;
      case Child::Outcome::gone: return fmt::format("{} before it said hello", child->obituary());
      case Child::Outcome::nonsense:
        return fmt::format("its hello is no {} message", name(command.format));
    }
    Result<WorkerAnswer> answer = read_answer(text, request, command.format);
    if (!answer) return "its hello makes no sense: " + answer.error();
    if (answer->status != "ok") return answer->message;
    hello = std::move(*answer);
    return "";
  }

  Bridge() {
    const char* const text = std::getenv("ATTEST_WORKER");
    const Result<WorkerCommand> given = read_worker_command(text ? text : "");
    if (!given) {
      trouble = "ATTEST_WORKER: " + given.error();
      return;
    }
    command = *given;
    trouble = greet();
    if (hello.name.empty()) hello.name = "worker";
    if (hello.version.empty()) hello.version = "unknown";
  }
};

Bridge& bridge() {
  static Bridge one;
  return one;
}

void say(attest_context* context, const std::string& text) {
  if (context && context->message && context->message_capacity > 0)
    std::snprintf(context->message, context->message_capacity, "%s", text.c_str());
}

attest_status status_of(const WorkerAnswer& answer) {
  if (answer.status == "unsupported") return ATTEST_UNSUPPORTED;
  if (answer.status == "invalid") return ATTEST_INVALID;
  if (answer.status == "out_of_memory") return ATTEST_OUT_OF_MEMORY;
  return answer.status == "failed" ? ATTEST_FAILED : ATTEST_OK;
}

/// The program's answer; or nonsense, after which a fresh one is started for the next call.
attest_status ask(WorkerRequest request, const std::vector<NamedTensor>& outputs,
                  attest_context* context) {
  Bridge& to = bridge();
  if (!to.child->running())
    if (const std::string why = to.greet(); !why.empty()) {
      say(context, "started again: " + why);
      return ATTEST_FAILED;
    }
  request.id = to.next_id++;
  std::string text;
  std::string nonsense;
  switch (to.child->exchange(write_request(request, to.command.format), text)) {
    case Child::Outcome::answered: break;
    case Child::Outcome::gone: to.child->follow();
    case Child::Outcome::nonsense: nonsense = "wrote more than one answer to one request"; break;
  }
  if (nonsense.empty()) {
    const Result<WorkerAnswer> answer = read_answer(text, request, to.command.format);
    if (answer) {
      const attest_status status = status_of(*answer);
      if (status == ATTEST_OK)
        take_outputs(*answer, outputs);
      else
        say(context, answer->message);
      return status;
    }
    nonsense = answer.error();
  }
  to.child->stop();
  say(context, "the answer makes no sense: " + nonsense);
  return kNonsense;
}

/// Whether the program declares any order of axes in memory beside [B, H, L, D].
bool declares_layouts(const std::string& text) {
  const Result<Declaration> declaration = parse_declaration(text);
  if (!declaration) return false;
  for (const Feature layout : {Feature::layout_blhd, Feature::layout_bhdl, Feature::layout_strided,
                               Feature::layout_kv_packed, Feature::layout_broadcast})
    if (declaration->has(layout)) return true;
  return false;
}

/// Tensors travel without gaps, so a program cannot see how they lie, nor refuse it.
bool lies_as_declared(const attest_attention& problem) {
  static const bool any = declares_layouts(bridge().hello.declaration);
  if (any) return true;
  const DLTensor* const tensors[] = {problem.q, problem.k, problem.v, problem.o};
  for (const DLTensor* tensor : tensors) {
    std::int64_t step = 1;
    for (int axis = tensor->ndim - 1; axis >= 0; step *= tensor->shape[axis--])
      if (tensor->shape[axis] > 1 && tensor->strides[axis] != step) return false;
  }
  return true;
}

/// No exception crosses the contract.
template <class Body>
attest_status guarded(attest_context* context, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ATTEST_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    say(context, error.what());
    return ATTEST_FAILED;
  }
}

attest_status ask_attention(const char* operation, const attest_attention* problem,
                            attest_context* context) {
  return guarded(context, [&]() -> attest_status {
    if (!lies_as_declared(*problem)) {
      say(context, "this layout is not declared");
      return ATTEST_UNSUPPORTED;
    }
    return ask(attention_request(operation, *problem, context->num_threads),
               attention_outputs(operation, *problem), context);
  });
}

attest_status open(std::int32_t, attest_context* context, void**) {
  if (bridge().trouble.empty()) return ATTEST_OK;
  say(context, bridge().trouble);
  return ATTEST_FAILED;
}

void close(void*) { bridge().child.reset(); }

attest_status forward(void*, void*, const attest_attention* problem, attest_context* context) {
  return ask_attention("forward", problem, context);
}
attest_status backward(void*, void*, const attest_attention* problem, attest_context* context) {
  return ask_attention("backward", problem, context);
}
attest_status decode(void*, void*, const attest_attention* problem, attest_context* context) {
  return ask_attention("decode", problem, context);
}

attest_status component(void*, const char* operation, const attest_named_tensor* inputs,
                        std::uint64_t num_inputs, const attest_named_tensor* outputs,
                        std::uint64_t num_outputs, const attest_named_scalar* scalars,
                        std::uint64_t num_scalars, attest_context* context) {
  return guarded(context, [&] {
    WorkerRequest request;
    request.operation = operation;
    std::vector<NamedTensor> given, wanted;
    for (std::uint64_t n = 0; n < num_inputs; ++n)
      given.push_back({inputs[n].name, inputs[n].tensor});
    for (std::uint64_t n = 0; n < num_outputs; ++n)
      wanted.push_back({outputs[n].name, outputs[n].tensor});
    for (std::uint64_t n = 0; n < num_scalars; ++n) {
      const attest_named_scalar& scalar = scalars[n];
      if (scalar.is_float)
        request.attributes.emplace_back(scalar.name, scalar.f);
      else
        request.attributes.emplace_back(scalar.name, scalar.i);
    }
    put_tensors(given, wanted, request);
    return ask(std::move(request), wanted, context);
  });
}

attest_plugin make_table() {
  const WorkerAnswer& hello = bridge().hello;
  attest_plugin plugin{};
  plugin.struct_size = sizeof plugin;
  plugin.abi_version = ATTEST_ABI_VERSION;
  plugin.name = hello.name.c_str();
  plugin.version = hello.version.c_str();
  plugin.declaration = hello.declaration.c_str();
  plugin.device_type = kDLCPU;
  plugin.open = open;
  plugin.close = close;
  plugin.forward = forward;
  plugin.backward = backward;
  plugin.decode = decode;
  plugin.component = component;
  return plugin;
}

}  // namespace
}  // namespace attest

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_entry(std::uint32_t host_abi_version) {
  static const attest_plugin plugin = attest::make_table();
  return host_abi_version == ATTEST_ABI_VERSION ? &plugin : nullptr;
}
