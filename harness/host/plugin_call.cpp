// SPDX-License-Identifier: Apache-2.0
#include "harness/host/plugin_call.hpp"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

namespace attest {

namespace {

constexpr int kMaxKernels = 10000;  // a chain of `next` longer than this is a ring
constexpr std::int32_t kRope = 3;   // of the enum Operation
constexpr std::uint64_t kWorkspaceAlignment = 256;
// Around the workspace; what lies farther off is guarded by the end that it stands against.
constexpr std::uint64_t kWorkspaceMargin = kPageBytes;

std::uint64_t clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t process_cpu_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }
std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

bool fail(LoadReply& reply, LoadProblem problem, std::int64_t number, const char* text) {
  reply.problem = problem;
  reply.number = number;
  snprintf(reply.text, sizeof reply.text, "%s", text);
  return false;
}

/// What the plug-in has of the struct; the rest stays 0.
attest_plugin known_fields(const attest_plugin& plugin) {
  attest_plugin copy;
  memset(&copy, 0, sizeof copy);
  memcpy(&copy, &plugin, plugin.struct_size < sizeof copy ? plugin.struct_size : sizeof copy);
  return copy;
}

/// Name, version or declaration; false where it is NULL or does not fit.
template <std::size_t kBytes>
bool copy_text(const char* what, const char* text, char (&to)[kBytes], LoadReply& reply) {
  if (!text) {
    snprintf(reply.text, sizeof reply.text, "its %s is NULL", what);
  } else if (strnlen(text, kBytes) == kBytes) {
    snprintf(reply.text, sizeof reply.text, "its %s is longer than %zu bytes", what, kBytes - 1);
  } else {
    memcpy(to, text, strlen(text) + 1);
    return true;
  }
  reply.problem = LoadProblem::bad_text;
  return false;
}

/// The kernel of that name, or nullptr with the names there are in reply.text.
bool find_kernel(const attest_plugin* plugin, const char* kernel, attest_plugin& found,
                 LoadReply& reply) {
  constexpr std::uint32_t kLeast = offsetof(attest_plugin, open);
  reply.text[0] = '\0';
  for (int i = 0; plugin && i < kMaxKernels; ++i) {
    if (plugin->abi_version != ATTEST_ABI_VERSION)
      return fail(reply, LoadProblem::wrong_abi, plugin->abi_version, "");
    if (plugin->struct_size < kLeast)
      return fail(reply, LoadProblem::short_struct, plugin->struct_size, "");
    found = known_fields(*plugin);
    if (!kernel[0] || (found.name && strcmp(found.name, kernel) == 0)) return true;
    const std::size_t used = strlen(reply.text);
    snprintf(reply.text + used, sizeof reply.text - used, "%s%s", used ? ", " : "",
             found.name ? found.name : "(null)");
    plugin = found.next;
  }
  reply.problem = LoadProblem::no_such_kernel;
  return false;
}

struct CallTensors {
  DLTensor tensors[kNumSlots];
  std::int64_t shape[kNumSlots][4], strides[kNumSlots][4];
};

DLTensor* tensor(CallTensors& tensors, const PlacedCall& call, Slot slot) {
  const int index = static_cast<int>(slot);
  return call.tensors[index].present ? &tensors.tensors[index] : nullptr;
}

/// Fresh structs for every call: a kernel that writes to them harms itself alone.
attest_attention describe(CallTensors& tensors, std::byte* base, const PlacedCall& call) {
  for (int i = 0; i < kNumSlots; ++i) {
    const PlacedTensor& placed = call.tensors[i];
    if (!placed.present) continue;
    memcpy(tensors.shape[i], placed.shape, sizeof placed.shape);
    memcpy(tensors.strides[i], placed.strides, sizeof placed.strides);
    DLTensor& made = tensors.tensors[i];
    made.data = base + placed.offset;
    made.device = {kDLCPU, 0};
    made.ndim = placed.rank;
    made.dtype = {placed.code, placed.bits, 1};
    made.shape = tensors.shape[i];
    made.strides = tensors.strides[i];
    made.byte_offset = 0;
  }
  attest_attention problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.q = tensor(tensors, call, Slot::q);
  problem.k = tensor(tensors, call, Slot::k);
  problem.v = tensor(tensors, call, Slot::v);
  problem.o = tensor(tensors, call, Slot::o);
  problem.lse = tensor(tensors, call, Slot::lse);
  problem.bias = tensor(tensors, call, Slot::bias);
  problem.mask = tensor(tensors, call, Slot::mask);
  problem.blocks = tensor(tensors, call, Slot::blocks);
  problem.keep = tensor(tensors, call, Slot::keep);
  problem.alibi_slopes = tensor(tensors, call, Slot::alibi_slopes);
  problem.sink = tensor(tensors, call, Slot::sink);
  problem.seqlens_q = tensor(tensors, call, Slot::seqlens_q);
  problem.seqlens_k = tensor(tensors, call, Slot::seqlens_k);
  problem.left_pad_q = tensor(tensors, call, Slot::left_pad_q);
  problem.left_pad_k = tensor(tensors, call, Slot::left_pad_k);
  problem.cu_seqlens_q = tensor(tensors, call, Slot::cu_seqlens_q);
  problem.cu_seqlens_k = tensor(tensors, call, Slot::cu_seqlens_k);
  problem.q_offset = tensor(tensors, call, Slot::q_offset);
  problem.prefix_len = tensor(tensors, call, Slot::prefix_len);
  problem.rope_cos = tensor(tensors, call, Slot::rope_cos);
  problem.rope_sin = tensor(tensors, call, Slot::rope_sin);
  problem.d_o = tensor(tensors, call, Slot::d_o);
  problem.d_lse = tensor(tensors, call, Slot::d_lse);
  problem.d_q = tensor(tensors, call, Slot::d_q);
  problem.d_k = tensor(tensors, call, Slot::d_k);
  problem.d_v = tensor(tensors, call, Slot::d_v);
  problem.d_bias = tensor(tensors, call, Slot::d_bias);
  problem.d_alibi_slopes = tensor(tensors, call, Slot::d_alibi_slopes);
  problem.d_sink = tensor(tensors, call, Slot::d_sink);
  problem.k_cache = tensor(tensors, call, Slot::k_cache);
  problem.v_cache = tensor(tensors, call, Slot::v_cache);
  problem.cache_len = tensor(tensors, call, Slot::cache_len);
  problem.block_table = tensor(tensors, call, Slot::block_table);
  const PlacedScalars& scalars = call.scalars;
  problem.scale = scalars.scale;
  problem.softcap = scalars.softcap;
  problem.dropout_p = scalars.dropout_p;
  problem.rope_base = scalars.rope_base;
  problem.rope_scale = scalars.rope_scale;
  problem.rope_ntk = scalars.rope_ntk;
  problem.window_left = scalars.window_left;
  problem.window_right = scalars.window_right;
  problem.global_tokens = scalars.global_tokens;
  problem.block_q = scalars.block_q;
  problem.block_k = scalars.block_k;
  problem.rope_dim = scalars.rope_dim;
  problem.rope_position = scalars.rope_position;
  problem.base = scalars.base;
  problem.align = scalars.align;
  problem.alibi = scalars.alibi;
  problem.alibi_inside_softcap = scalars.alibi_inside_softcap;
  problem.rope = scalars.rope;
  problem.num_splits = scalars.num_splits;
  problem.cache = scalars.cache;
  problem.cache_rotated = scalars.cache_rotated;
  return problem;
}

attest_context make_context(const PlacedCall& call, char* message) {
  attest_context context;
  memset(&context, 0, sizeof context);
  context.struct_size = sizeof context;
  context.num_threads = call.scalars.num_threads;
  context.message = message;
  context.message_capacity = kMessageBytes;
  return context;
}

/// The rotary embedding by itself, as named tensors and scalars.
attest_status call_rope(const LoadedPlugin& loaded, CallTensors& tensors, const PlacedCall& call,
                        attest_context* context) {
  const attest_named_tensor inputs[] = {{"x", tensor(tensors, call, Slot::x)},
                                        {"positions", tensor(tensors, call, Slot::positions)},
                                        {"cos", tensor(tensors, call, Slot::rope_cos)},
                                        {"sin", tensor(tensors, call, Slot::rope_sin)}};
  const attest_named_tensor outputs[] = {{"y", tensor(tensors, call, Slot::y)}};
  const PlacedScalars& s = call.scalars;
  const attest_named_scalar scalars[] = {
      {"pairing", 0, 0, s.rope, 0},         {"rope_dim", 0, 0, s.rope_dim, 0},
      {"inverse", 0, 0, s.rope_inverse, 0}, {"rope_position", 0, 0, s.rope_position, 0},
      {"base", 1, 0, 0, s.rope_base},       {"scale", 1, 0, 0, s.rope_scale},
      {"ntk", 1, 0, 0, s.rope_ntk}};
  return loaded.plugin.component(loaded.state, "rope", inputs, sizeof inputs / sizeof inputs[0],
                                 outputs, sizeof outputs / sizeof outputs[0], scalars,
                                 sizeof scalars / sizeof scalars[0], context);
}

struct OfferedOperation {
  const char* name;
  decltype(attest_plugin::forward) function;  ///< NULL: not offered, or a component
};

/// In the order of the enum Operation.
OfferedOperation operation_of(const attest_plugin& plugin, const PlacedCall& call) {
  switch (call.scalars.operation) {
    case 1: return {"backward", plugin.backward};
    case 2: return {"decode", plugin.decode};
    case kRope: return {"rope", nullptr};
    default: return {"forward", plugin.forward};
  }
}

}  // namespace

std::uint64_t workspace_offset(const SlotRange& slot, std::uint64_t bytes, bool at_end) {
  return at_end ? (slot.offset + slot.bytes - bytes) & ~(kWorkspaceAlignment - 1) : slot.offset;
}

WorkspaceMargin workspace_margin(const SlotRange& slot, std::uint64_t bytes, std::uint64_t begin) {
  const std::uint64_t slot_end = slot.offset + slot.bytes, end = begin + bytes;
  const bool near_start = begin - slot.offset < kWorkspaceMargin;
  const bool near_end = slot_end - end < kWorkspaceMargin;
  return {near_start ? slot.offset : begin - kWorkspaceMargin,
          near_end ? slot_end : (end + kWorkspaceMargin) & ~std::uint64_t{7}};
}

bool load_plugin(const char* path, const char* kernel, LoadedPlugin& loaded, LoadReply& reply,
                 Stage& stage) {
  memset(&reply, 0, sizeof reply);
  stage = Stage::loading;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fail(reply, LoadProblem::not_loadable, 0, dlerror());
  const auto entry =
      reinterpret_cast<attest_plugin_entry_function>(dlsym(library, "attest_plugin_entry"));
  if (!entry) return fail(reply, LoadProblem::no_entry, 0, "");
  return open_plugin(entry(ATTEST_ABI_VERSION), kernel, loaded, reply, stage);
}

bool open_plugin(const attest_plugin* first, const char* kernel, LoadedPlugin& loaded,
                 LoadReply& reply, Stage& stage) {
  memset(&reply, 0, sizeof reply);
  memset(&loaded, 0, sizeof loaded);
  stage = Stage::loading;
  if (!first) return fail(reply, LoadProblem::null_entry, 0, "");
  attest_plugin& plugin = loaded.plugin;
  if (!find_kernel(first, kernel, plugin, reply)) return false;
  if (!plugin.forward && !plugin.decode && !plugin.component)
    return fail(reply, LoadProblem::no_forward, 0, "");
  if (!copy_text("name", plugin.name, reply.name, reply) ||
      !copy_text("version", plugin.version, reply.version, reply) ||
      !copy_text("declaration", plugin.declaration ? plugin.declaration : "", reply.declaration,
                 reply))
    return false;
  reply.alignment = plugin.alignment;
  const auto alignment = static_cast<std::uint32_t>(plugin.alignment);
  if (plugin.alignment < 0 || alignment > kPageBytes || (alignment & (alignment - 1)) != 0)
    return fail(reply, LoadProblem::bad_align, plugin.alignment, "");
  if (plugin.open) {
    stage = Stage::opening;
    char message[kMessageBytes] = "";
    PlacedCall none;
    memset(&none, 0, sizeof none);
    none.scalars.num_threads = 1;
    attest_context context = make_context(none, message);
    const attest_status status = plugin.open(0, &context, &loaded.state);
    message[kMessageBytes - 1] = '\0';
    if (status != ATTEST_OK) return fail(reply, LoadProblem::open_failed, status, message);
  }
  stage = Stage::idle;
  return true;
}

void call_kernel(const LoadedPlugin& loaded, std::byte* base, const SlotRange& workspace,
                 const PlacedCall& call, CallReply& reply, Stage& stage,
                 std::uint64_t& cpu_before_ns) {
  const attest_plugin& plugin = loaded.plugin;
  CallTensors tensors;
  const attest_attention problem = describe(tensors, base, call);
  char message[kMessageBytes] = "";
  reply.status = ATTEST_OK;
  reply.needs_workspace = 0;
  reply.workspace_bytes = 0;
  reply.elapsed_ns = 0;
  cpu_before_ns = process_cpu_ns();
  const OfferedOperation offered = operation_of(plugin, call);
  const bool is_component = call.scalars.operation == kRope;
  if (is_component ? !plugin.component : !offered.function) {
    reply.status = ATTEST_UNSUPPORTED;
    snprintf(reply.message, sizeof reply.message, "the plug-in offers no %s", offered.name);
    reply.cpu_ns = 0;
    return;
  }

  void* plan = nullptr;
  if (plugin.plan && !is_component) {
    stage = Stage::planning;
    attest_context context = make_context(call, message);
    reply.status =
        plugin.plan(loaded.state, offered.name, &problem, &context, &plan, &reply.workspace_bytes);
    if (reply.status != ATTEST_OK) plan = nullptr;
    reply.needs_workspace = reply.status == ATTEST_OK && reply.workspace_bytes > workspace.bytes;
  }
  if (reply.status == ATTEST_OK && !reply.needs_workspace) {
    attest_context context = make_context(call, message);
    if (reply.workspace_bytes) {
      const std::uint64_t begin =
          workspace_offset(workspace, reply.workspace_bytes, call.workspace_at_end != 0);
      const WorkspaceMargin margin = workspace_margin(workspace, reply.workspace_bytes, begin);
      for (std::uint64_t at = margin.begin; at < margin.end; at += sizeof call.workspace_fill)
        memcpy(base + at, &call.workspace_fill, sizeof call.workspace_fill);
      context.workspace = base + begin;
      context.workspace_bytes = reply.workspace_bytes;
    }
    message[0] = '\0';
    stage = Stage::running;
    const std::uint64_t start = monotonic_ns();
    std::uint32_t todo = call.repeats ? call.repeats : 1;
    do {
      reply.status = is_component ? call_rope(loaded, tensors, call, &context)
                                  : offered.function(loaded.state, plan, &problem, &context);
    } while (--todo != 0 && reply.status == ATTEST_OK);
    reply.elapsed_ns = monotonic_ns() - start;
  }
  if (plan && plugin.drop) {
    stage = Stage::closing;
    plugin.drop(loaded.state, plan);
  }
  stage = Stage::idle;
  const std::uint64_t cpu_after_ns = process_cpu_ns();
  reply.cpu_ns = cpu_after_ns - cpu_before_ns;
  cpu_before_ns = cpu_after_ns;  // the next call's, should the runner look before that has begun
  message[kMessageBytes - 1] = '\0';
  memcpy(reply.message, message, sizeof message);
}

}  // namespace attest
