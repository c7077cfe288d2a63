// SPDX-License-Identifier: Apache-2.0
// The C++ layer of the plug-in contract. A kernel is a class and one line:
//
//   class Mine : public attest::Kernel {
//     void forward(const attest_attention& problem, const attest::Context& context) override { ...
//     }
//   };
//   ATTEST_PLUGIN(Mine, "mine", "1.0", "dtype=f32 base=full,causal lse");
//
// Build it as a shared library; nothing is linked but the C++ standard library. Several lines in
// one library make several kernels (`./libmine.so#name`). Rules of the contract: attest/plugin.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "attest/plugin.h"
#include "attest/tensor.hpp"

namespace attest {

/// Throw this for a problem that the kernel does not serve: ATTEST_UNSUPPORTED with the message.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throw this for a problem that contradicts itself: ATTEST_INVALID with the message.
struct Invalid : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a kernel prepares once per problem, outside any timed region. Derive to add to it.
struct Plan {
  virtual ~Plan() = default;
  std::uint64_t workspace_bytes = 0;  ///< handed to every call, filled with junk
};

/// The caller's side of one call.
struct Context {
  int num_threads = 1;  ///< use no more
  void* stream = nullptr;
  void* workspace = nullptr;  ///< aligned to 256 bytes
  std::uint64_t workspace_bytes = 0;
  Plan* plan = nullptr;  ///< what Kernel::plan() returned for this problem
};

/// The rotary embedding by itself: y := R(position of the row) x for every row. attest/plugin.h
/// says what the tensors hold.
struct RopeCall {
  const DLTensor* x = nullptr;          ///< [B, H, L, D]
  DLTensor* y = nullptr;                ///< [B, H, L, D]
  const DLTensor* positions = nullptr;  ///< [B, L]
  const DLTensor* cos = nullptr;        ///< [N, rope_dim/2]; row r is position rope_position + r
  const DLTensor* sin = nullptr;
  std::int64_t rope_dim = 0;
  std::int64_t rope_position = 0;
  double base = 10000, scale = 1, ntk = 1;
  std::int32_t pairing = ATTEST_ROPE_INTERLEAVED;
  bool inverse = false;  ///< turn by -theta
};

/// One kernel. Constructed once per process, when the library is opened. Any exception becomes a
/// status with its message: Unsupported, Invalid, std::bad_alloc (ATTEST_OUT_OF_MEMORY), anything
/// else ATTEST_FAILED. Fields that the caller does not know read as 0.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void forward(const attest_attention& problem, const Context& context) {
    (void)problem, (void)context;
    throw Unsupported("forward is not served");
  }
  /// The gradients that the problem asks for, from d_o, d_lse and what forward() wrote.
  virtual void backward(const attest_attention& problem, const Context& context) {
    (void)problem, (void)context;
    throw Unsupported("backward is not served");
  }
  /// New rows of every sequence behind those of its cache: writes their keys and values into the
  /// cache, and attends to all.
  virtual void decode(const attest_attention& problem, const Context& context) {
    (void)problem, (void)context;
    throw Unsupported("decode is not served");
  }
  /// For kernels that declare component=rope.
  virtual void rope(const RopeCall& call, const Context& context) {
    (void)call, (void)context;
    throw Unsupported("rope is not served");
  }
  /// Override to prepare, or to ask for workspace. Data pointers are not final yet. `operation` is
  /// "forward", "backward" or "decode".
  virtual std::unique_ptr<Plan> plan(const std::string& operation, const attest_attention& problem,
                                     const Context& context) {
    (void)operation, (void)problem, (void)context;
    return nullptr;
  }
};

/// What a call can ask for beyond plain full attention of one type.
enum class Use : std::uint8_t {
  gqa,
  v_head_dim,
  causal,
  prefix,
  align_top_left,
  align_bottom_right,
  align_q_offset,
  window,
  global_tokens,
  lengths_q,
  lengths_k,
  packed,
  mask,
  blocks,
  bias,
  alibi,
  rope,
  softcap,
  sink,
  dropout,
  lse,
};
inline constexpr int kNumUses = static_cast<int>(Use::lse) + 1;

constexpr const char* name(Use use) {
  constexpr const char* kNames[kNumUses] = {
      "num_kv_heads != num_heads",
      "v_head_dim != head_dim",
      "base=causal",
      "base=prefix",
      "align=top_left",
      "align=bottom_right",
      "align=q_offset",
      "window",
      "global_tokens",
      "seqlens_q or left_pad_q",
      "seqlens_k or left_pad_k",
      "cu_seqlens",
      "mask",
      "blocks",
      "bias",
      "alibi",
      "rope",
      "softcap",
      "sink",
      "dropout",
      "lse",
  };
  return kNames[static_cast<int>(use)];
}

/// Whether the call asks for it. An alignment counts where q_len != kv_len or rows have their own
/// ranges, and something looks at positions.
inline bool asks_for(const attest_attention& p, Use use) {
  const bool window = p.window_left >= 0 || p.window_right >= 0;
  const bool positional = p.base != ATTEST_BASE_FULL || window || p.alibi || p.rope;
  const bool ranges = p.seqlens_q || p.seqlens_k || p.left_pad_q || p.left_pad_k || p.cu_seqlens_q;
  const bool aligned = positional && (ranges || p.q->shape[2] != p.k->shape[2]);
  switch (use) {
    case Use::gqa: return p.q->shape[1] != p.k->shape[1];
    case Use::v_head_dim: return p.q->shape[3] != p.v->shape[3];
    case Use::causal: return p.base == ATTEST_BASE_CAUSAL;
    case Use::prefix: return p.base == ATTEST_BASE_PREFIX;
    case Use::align_top_left: return aligned && p.align == ATTEST_ALIGN_TOP_LEFT;
    case Use::align_bottom_right: return aligned && p.align == ATTEST_ALIGN_BOTTOM_RIGHT;
    case Use::align_q_offset: return positional && p.align == ATTEST_ALIGN_Q_OFFSET;
    case Use::window: return window;
    case Use::global_tokens: return p.global_tokens != 0;
    case Use::lengths_q: return p.seqlens_q || p.left_pad_q;
    case Use::lengths_k: return p.seqlens_k || p.left_pad_k;
    case Use::packed: return p.cu_seqlens_q || p.cu_seqlens_k;
    case Use::mask: return p.mask != nullptr;
    case Use::blocks: return p.blocks != nullptr;
    case Use::bias: return p.bias != nullptr;
    case Use::alibi: return p.alibi != ATTEST_ALIBI_NONE;
    case Use::rope: return p.rope != ATTEST_ROPE_NONE;
    case Use::softcap: return p.softcap != 0;
    case Use::sink: return p.sink != nullptr;
    case Use::dropout: return p.keep || p.dropout_p != 0;
    case Use::lse: return p.lse != nullptr;
  }
  return false;
}

/// Refuses (Unsupported, naming it) what the call asks for beyond the given types and uses: what a
/// kernel was not declared to do must be refused, never ignored.
inline void accept_only(const attest_attention& problem, std::initializer_list<DType> dtypes,
                        std::initializer_list<Use> uses) {
  const auto dtype = dtype_of(problem.q->dtype);
  if (!dtype || std::find(dtypes.begin(), dtypes.end(), *dtype) == dtypes.end())
    throw Unsupported("this element type is not served");
  for (int i = 0; i < kNumUses; ++i) {
    const auto use = static_cast<Use>(i);
    if (asks_for(problem, use) && std::find(uses.begin(), uses.end(), use) == uses.end())
      throw Unsupported(std::string(name(use)) + " is not served");
  }
}

/// body(b, h, i) for every query row of the call.
template <class Body>
void for_each_row(const attest_attention& problem, Body&& body) {
  const std::int64_t* const shape = problem.q->shape;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i) body(b, h, i);
}

// Hidden: default visibility would make these one object for all plug-ins of a process.
#pragma GCC visibility push(hidden)
namespace detail {

inline const attest_plugin* first_plugin = nullptr;
inline attest_plugin* last_plugin = nullptr;

inline bool append(attest_plugin* plugin) {
  if (last_plugin)
    last_plugin->next = plugin;
  else
    first_plugin = plugin;
  last_plugin = plugin;
  return true;
}

/// A full-size copy of a struct whose writer may know fewer fields or more. Non-zero bytes beyond
/// what this plug-in knows mean something that it cannot serve.
template <class Struct>
Struct read_struct(const Struct* given, const char* what) {
  Struct copy{};
  const std::size_t size = given->struct_size;
  std::memcpy(&copy, given, std::min(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(Struct); i < size; ++i)
    if (bytes[i] != 0)
      throw Unsupported(std::string(what) + " sets a field that this plug-in does not know");
  return copy;
}

inline attest_attention read_problem(const attest_attention* given) {
  const attest_attention p = read_struct(given, "the problem");
  if (p.reserved != 0 || p.reserved_end != 0) throw Unsupported("a reserved field is not 0");
  const auto known = [](std::int32_t value, std::int32_t last, const char* field) {
    if (value < 0 || value > last)
      throw Unsupported(std::string(field) + "=" + std::to_string(value) + " is unknown");
  };
  known(p.base, ATTEST_BASE_PREFIX, "base");
  known(p.align, ATTEST_ALIGN_Q_OFFSET, "align");
  known(p.alibi, ATTEST_ALIBI_KEY_ANCHORED, "alibi");
  known(p.alibi_inside_softcap, 1, "alibi_inside_softcap");
  known(p.rope, ATTEST_ROPE_HALF, "rope");
  known(p.cache, ATTEST_CACHE_PAGED, "cache");
  known(p.cache_rotated, 1, "cache_rotated");
  if (!p.q || !p.k || !p.v || !p.o) throw Invalid("q, k, v and o must all be given");
  return p;
}

inline Context read_context(const attest_context* given, void* plan) {
  const attest_context c = read_struct(given, "the context");
  return {std::max(c.num_threads, std::int32_t{1}), c.stream, c.workspace, c.workspace_bytes,
          static_cast<Plan*>(plan)};
}

/// Writes context->message, cut to its capacity; does nothing where the caller offers none.
inline void write_message(attest_context* context, const char* text) noexcept {
  if (!context || context->struct_size <
                      offsetof(attest_context, message_capacity) + sizeof context->message_capacity)
    return;
  if (!context->message || context->message_capacity == 0) return;
  const std::size_t length =
      std::min<std::size_t>(std::strlen(text), context->message_capacity - 1);
  std::memcpy(context->message, text, length);
  context->message[length] = '\0';
}

/// Runs the body; no exception gets out.
template <class Body>
attest_status guarded(attest_context* context, Body&& body) noexcept {
  attest_status status = ATTEST_OK;
  try {
    body();
  } catch (const Unsupported& e) {
    status = ATTEST_UNSUPPORTED;
    write_message(context, e.what());
  } catch (const Invalid& e) {
    status = ATTEST_INVALID;
    write_message(context, e.what());
  } catch (const std::bad_alloc&) {
    status = ATTEST_OUT_OF_MEMORY;
    write_message(context, "out of memory");
  } catch (const std::exception& e) {
    status = ATTEST_FAILED;
    write_message(context, e.what());
  } catch (...) {
    status = ATTEST_FAILED;
    write_message(context, "an exception that is no std::exception");
  }
  return status;
}

template <class T>
attest_status open(std::int32_t, attest_context* context, void** state) {
  return guarded(context, [&] { *state = static_cast<Kernel*>(new T); });
}

inline void close(void* state) { delete static_cast<Kernel*>(state); }

inline attest_status plan(void* state, const char* operation, const attest_attention* problem,
                          attest_context* context, void** made, std::uint64_t* workspace_bytes) {
  return guarded(context, [&] {
    auto plan = static_cast<Kernel*>(state)->plan(operation, read_problem(problem),
                                                  read_context(context, nullptr));
    *workspace_bytes = plan ? plan->workspace_bytes : 0;
    *made = plan.release();
  });
}

inline void drop(void*, void* plan) { delete static_cast<Plan*>(plan); }

inline attest_status forward(void* state, void* plan, const attest_attention* problem,
                             attest_context* context) {
  return guarded(context, [&] {
    static_cast<Kernel*>(state)->forward(read_problem(problem), read_context(context, plan));
  });
}

inline attest_status backward(void* state, void* plan, const attest_attention* problem,
                              attest_context* context) {
  return guarded(context, [&] {
    const attest_attention p = read_problem(problem);
    if (!p.d_o) throw Invalid("d_o must be given");
    static_cast<Kernel*>(state)->backward(p, read_context(context, plan));
  });
}

inline attest_status decode(void* state, void* plan, const attest_attention* problem,
                            attest_context* context) {
  return guarded(context, [&] {
    const attest_attention p = read_problem(problem);
    if (!p.k_cache || !p.v_cache || !p.cache_len)
      throw Invalid("k_cache, v_cache and cache_len must all be given");
    if ((p.cache == ATTEST_CACHE_PAGED) != (p.block_table != nullptr))
      throw Invalid("block_table goes with cache=paged");
    static_cast<Kernel*>(state)->decode(p, read_context(context, plan));
  });
}

/// The named tensors and scalars of one call of a component. Each is asked for once; a name that
/// nobody asked for means something that this plug-in cannot serve.
class Named {
 public:
  Named(const attest_named_tensor* inputs, std::uint64_t num_inputs,
        const attest_named_tensor* outputs, std::uint64_t num_outputs,
        const attest_named_scalar* scalars, std::uint64_t num_scalars)
      : inputs_(inputs, inputs + num_inputs),
        outputs_(outputs, outputs + num_outputs),
        scalars_(scalars, scalars + num_scalars) {}
  const DLTensor* input(const char* name) { return take(inputs_, name).tensor; }
  DLTensor* output(const char* name) { return const_cast<DLTensor*>(take(outputs_, name).tensor); }
  std::int64_t integer(const char* name) { return take(scalars_, name).i; }
  double number(const char* name) { return take(scalars_, name).f; }
  void all_taken() const {
    for (const auto* left : {&inputs_, &outputs_})
      if (!left->empty()) unknown(left->front().name);
    if (!scalars_.empty()) unknown(scalars_.front().name);
  }

 private:
  template <class Entry>
  static Entry take(std::vector<Entry>& entries, const char* name) {
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (std::strcmp(entries[i].name, name) == 0) {
        const Entry found = entries[i];
        entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
        return found;
      }
    throw Invalid(std::string(name) + " is not given");
  }
  [[noreturn]] static void unknown(const char* name) {
    throw Unsupported(std::string(name) + " is given, which this plug-in does not know");
  }
  std::vector<attest_named_tensor> inputs_, outputs_;
  std::vector<attest_named_scalar> scalars_;
};

inline RopeCall read_rope(Named& named) {
  RopeCall call;
  call.x = named.input("x");
  call.positions = named.input("positions");
  call.cos = named.input("cos");
  call.sin = named.input("sin");
  call.y = named.output("y");
  call.pairing = static_cast<std::int32_t>(named.integer("pairing"));
  call.rope_dim = named.integer("rope_dim");
  call.rope_position = named.integer("rope_position");
  call.inverse = named.integer("inverse") != 0;
  call.base = named.number("base");
  call.scale = named.number("scale");
  call.ntk = named.number("ntk");
  named.all_taken();
  if (call.pairing != ATTEST_ROPE_INTERLEAVED && call.pairing != ATTEST_ROPE_HALF)
    throw Unsupported("pairing=" + std::to_string(call.pairing) + " is unknown");
  return call;
}

inline attest_status component(void* state, const char* operation,
                               const attest_named_tensor* inputs, std::uint64_t num_inputs,
                               const attest_named_tensor* outputs, std::uint64_t num_outputs,
                               const attest_named_scalar* scalars, std::uint64_t num_scalars,
                               attest_context* context) {
  return guarded(context, [&] {
    if (std::strcmp(operation, "rope") != 0)
      throw Unsupported(std::string(operation) + " is not served");
    Named named(inputs, num_inputs, outputs, num_outputs, scalars, num_scalars);
    static_cast<Kernel*>(state)->rope(read_rope(named), read_context(context, nullptr));
  });
}

template <class T>
attest_plugin table(const char* name, const char* version, const char* declaration,
                    std::int32_t device_type = kDLCPU, std::int32_t alignment = 0) {
  static_assert(std::is_base_of_v<Kernel, T>, "a plug-in class derives from attest::Kernel");
  attest_plugin plugin{};
  plugin.struct_size = sizeof plugin;
  plugin.abi_version = ATTEST_ABI_VERSION;
  plugin.name = name;
  plugin.version = version;
  plugin.declaration = declaration;
  plugin.device_type = device_type;
  plugin.alignment = alignment;
  plugin.open = &open<T>;
  plugin.close = &close;
  plugin.plan = &detail::plan;
  plugin.drop = &drop;
  plugin.forward = &detail::forward;
  plugin.backward = &detail::backward;
  plugin.decode = &detail::decode;
  plugin.component = &detail::component;
  return plugin;
}

}  // namespace detail
#pragma GCC visibility pop
}  // namespace attest

/// ATTEST_PLUGIN(Type, name, version, declaration[, device_type[, alignment]]); at namespace scope
/// of a source file, Type a plain identifier.
#define ATTEST_PLUGIN(Type, ...)                                                          \
  static attest_plugin attest_plugin_##Type = ::attest::detail::table<Type>(__VA_ARGS__); \
  [[maybe_unused]] static const bool attest_registered_##Type =                           \
      ::attest::detail::append(&attest_plugin_##Type)

extern "C" {
/// Present in every library that includes this header; the kernels in the order of their lines.
__attribute__((used)) ATTEST_EXPORT inline const attest_plugin* attest_plugin_entry(
    uint32_t host_abi_version) {
  return host_abi_version == ATTEST_ABI_VERSION ? attest::detail::first_plugin : nullptr;
}
}
