// SPDX-License-Identifier: Apache-2.0
// The C++ layer of the contract, called as a host calls it.
#include "attest/plugin.hpp"

#include <new>

#include "impls/testing.hpp"

namespace attest::testing {
namespace {

/// Does what the scale of the call says: a way for a test to choose.
class Chooser : public Kernel {
  void forward(const attest_attention& p, const Context& context) override {
    seen = p;
    seen_context = context;
    if (p.scale == 2) throw Unsupported{"no such thing"};
    if (p.scale == 3) throw Invalid{"contradiction"};
    if (p.scale == 4) throw std::bad_alloc{};
    if (p.scale == 5) throw std::logic_error("a mistake");
    if (p.scale == 6) throw 6;
  }
  std::unique_ptr<Plan> plan(const std::string& operation, const attest_attention& p,
                             const Context&) override {
    if (operation != "forward" || p.scale == 2) throw Unsupported{"no plan for " + operation};
    auto plan = std::make_unique<Plan>();
    plan->workspace_bytes = 96;
    return plan;
  }

 public:
  static attest_attention seen;
  static Context seen_context;
};
attest_attention Chooser::seen;
Context Chooser::seen_context;

class Second : public Kernel {
  void forward(const attest_attention& p, const Context&) override {
    accept_only(p, {DType::f32, DType::bf16}, {Use::causal, Use::align_bottom_right});
  }
};

ATTEST_PLUGIN(Chooser, "first", "1.5", "dtype=f32");
ATTEST_PLUGIN(Second, "second", "2.5", "dtype=f32,bf16 base=full,causal align=bottom_right",
              kDLCUDA, 16);

/// A call on the given kernel with tensors of the plainest kind.
struct Call {
  Tensor q{dl_dtype(DType::f32), {1, 2, 3, 4}}, k{dl_dtype(DType::f32), {1, 2, 5, 4}};
  Tensor v{dl_dtype(DType::f32), {1, 2, 5, 4}}, o{dl_dtype(DType::f32), {1, 2, 3, 4}};
  attest_attention p = plain_call();
  attest_context context{};
  char message[64] = "untouched";
  const attest_plugin* plugin = attest_plugin_entry(ATTEST_ABI_VERSION);
  void* state = nullptr;
  void* plan = nullptr;

  explicit Call(bool second = false) {
    if (second) plugin = plugin->next;
    p.q = q.dl(), p.k = k.dl(), p.v = v.dl(), p.o = o.dl();
    context.struct_size = sizeof context;
    context.num_threads = 3;
    context.message = message;
    context.message_capacity = sizeof message;
    EXPECT_EQ(plugin->open(0, &context, &state), ATTEST_OK);
  }
  ~Call() { plugin->close(state); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  attest_status forward() { return plugin->forward(state, plan, &p, &context); }
};

TEST(Plugin, LinesBecomeTablesInTheirOrder) {
  const attest_plugin* first = attest_plugin_entry(ATTEST_ABI_VERSION);
  ASSERT_NE(first, nullptr);
  EXPECT_STREQ(first->name, "first");
  EXPECT_STREQ(first->version, "1.5");
  EXPECT_EQ(first->struct_size, sizeof(attest_plugin));
  EXPECT_EQ(first->abi_version, ATTEST_ABI_VERSION);
  EXPECT_EQ(first->device_type, kDLCPU);
  EXPECT_EQ(first->alignment, 0);
  ASSERT_NE(first->next, nullptr);
  EXPECT_STREQ(first->next->name, "second");
  EXPECT_EQ(first->next->device_type, kDLCUDA);
  EXPECT_EQ(first->next->alignment, 16);
  EXPECT_EQ(first->next->next, nullptr);
  EXPECT_EQ(attest_plugin_entry(ATTEST_ABI_VERSION + 1), nullptr);
}

TEST(Plugin, ExceptionsBecomeStatusAndMessage) {
  const auto expect = [](double scale, attest_status status, const char* message) {
    Call call;
    call.p.scale = scale;
    EXPECT_EQ(call.forward(), status);
    EXPECT_STREQ(call.message, message);
  };
  expect(1, ATTEST_OK, "untouched");
  expect(2, ATTEST_UNSUPPORTED, "no such thing");
  expect(3, ATTEST_INVALID, "contradiction");
  expect(4, ATTEST_OUT_OF_MEMORY, "out of memory");
  expect(5, ATTEST_FAILED, "a mistake");
  expect(6, ATTEST_FAILED, "an exception that is no std::exception");
}

TEST(Plugin, MessageStaysInsideItsCapacity) {
  Call call;
  call.p.scale = 2;
  call.context.message_capacity = 8;
  EXPECT_EQ(call.forward(), ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "no such");
  EXPECT_EQ(call.message[8], 'd');  // of "untouched"

  for (const bool no_buffer : {true, false}) {
    Call quiet;
    quiet.p.scale = 2;
    (no_buffer ? quiet.context.message = nullptr : &quiet.message[0]);
    if (!no_buffer) quiet.context.message_capacity = 0;
    EXPECT_EQ(quiet.forward(), ATTEST_UNSUPPORTED);
    EXPECT_STREQ(quiet.message, "untouched");
  }
}

TEST(Plugin, FieldsBeyondAShorterStructReadAsZero) {
  Call call;
  call.p.window_left = 7;
  call.p.rope = 99;  // beyond the end: junk that is not the caller's
  call.p.reserved_end = 99;
  call.p.struct_size = offsetof(attest_attention, window_right);
  call.context.workspace_bytes = 1 << 20;
  call.context.struct_size = offsetof(attest_context, workspace);
  ASSERT_EQ(call.forward(), ATTEST_OK);
  EXPECT_EQ(Chooser::seen.window_left, 7);
  EXPECT_EQ(Chooser::seen.window_right, 0);
  EXPECT_EQ(Chooser::seen.rope, 0);
  EXPECT_EQ(Chooser::seen_context.num_threads, 3);
  EXPECT_EQ(Chooser::seen_context.workspace_bytes, 0u);
  call.p.scale = 2;  // no message, for want of a field that says where
  EXPECT_EQ(call.forward(), ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "untouched");
}

TEST(Plugin, LongerStructIsServedWhileItsNewFieldsAreZero) {
  Call call;
  struct Newer {
    attest_attention known;
    std::int64_t more[2];
  } newer{call.p, {0, 0}};
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(call.plugin->forward(call.state, nullptr, &newer.known, &call.context), ATTEST_OK);
  newer.more[1] = 1;
  EXPECT_EQ(call.plugin->forward(call.state, nullptr, &newer.known, &call.context),
            ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "the problem sets a field that this plug-in does not know");
}

TEST(Plugin, PlanIsMadeHandedOverAndDropped) {
  Call call;
  std::uint64_t workspace_bytes = 0;
  ASSERT_EQ(call.plugin->plan(call.state, "forward", &call.p, &call.context, &call.plan,
                              &workspace_bytes),
            ATTEST_OK);
  EXPECT_EQ(workspace_bytes, 96u);
  ASSERT_EQ(call.forward(), ATTEST_OK);
  EXPECT_EQ(Chooser::seen_context.plan, call.plan);
  call.plugin->drop(call.state, call.plan);
  call.p.scale = 2;
  EXPECT_EQ(call.plugin->plan(call.state, "forward", &call.p, &call.context, &call.plan,
                              &workspace_bytes),
            ATTEST_UNSUPPORTED);
  EXPECT_STREQ(call.message, "no plan for forward");

  Call other(true);  // a kernel without plans of its own offers an empty one
  workspace_bytes = 5;
  ASSERT_EQ(other.plugin->plan(other.state, "forward", &other.p, &other.context, &other.plan,
                               &workspace_bytes),
            ATTEST_OK);
  EXPECT_EQ(workspace_bytes, 0u);
  EXPECT_EQ(other.plan, nullptr);
  other.plugin->drop(other.state, other.plan);
}

TEST(Plugin, AcceptOnlyRefusesEachOtherUseByName) {
  const auto expect = [](const char* message, auto&& change) {
    Call call(true);
    Tensor extra(kDlInt32, {1});
    change(call, extra.dl());
    EXPECT_EQ(call.forward(), message ? ATTEST_UNSUPPORTED : ATTEST_OK) << message;
    EXPECT_STREQ(call.message,
                 message ? (std::string(message) + " is not served").c_str() : "untouched");
  };
  using C = Call;
  using T = const DLTensor*;
  expect(nullptr, [](C&, T) {});
  expect(nullptr, [](C& c, T) { c.p.base = ATTEST_BASE_CAUSAL; });
  expect(nullptr, [](C& c, T) { c.p.align = ATTEST_ALIGN_TOP_LEFT; });  // nothing looks at it
  expect("this element type", [](C& c, T) { c.q.dl()->dtype = dl_dtype(DType::f16); });
  expect("num_kv_heads != num_heads", [](C& c, T) { c.k.dl()->shape[1] = 1; });
  expect("v_head_dim != head_dim", [](C& c, T) { c.v.dl()->shape[3] = 5; });
  expect("base=prefix", [](C& c, T) { c.p.base = ATTEST_BASE_PREFIX; });
  expect("align=top_left", [](C& c, T) {
    c.p.base = ATTEST_BASE_CAUSAL;
    c.p.align = ATTEST_ALIGN_TOP_LEFT;
  });
  expect("align=q_offset", [](C& c, T) {
    c.p.base = ATTEST_BASE_CAUSAL;
    c.p.align = ATTEST_ALIGN_Q_OFFSET;
  });
  expect("window", [](C& c, T) { c.p.window_left = 0; });
  expect("window", [](C& c, T) { c.p.window_right = 0; });
  expect("global_tokens", [](C& c, T) { c.p.global_tokens = 1; });
  expect("seqlens_q or left_pad_q", [](C& c, T t) { c.p.seqlens_q = t; });
  expect("seqlens_q or left_pad_q", [](C& c, T t) { c.p.left_pad_q = t; });
  expect("seqlens_k or left_pad_k", [](C& c, T t) { c.p.seqlens_k = t; });
  expect("seqlens_k or left_pad_k", [](C& c, T t) { c.p.left_pad_k = t; });
  expect("cu_seqlens", [](C& c, T t) { c.p.cu_seqlens_k = t; });
  expect("mask", [](C& c, T t) { c.p.mask = t; });
  expect("blocks", [](C& c, T t) { c.p.blocks = t; });
  expect("bias", [](C& c, T t) { c.p.bias = t; });
  expect("alibi", [](C& c, T) { c.p.alibi = ATTEST_ALIBI_SIGNED; });
  expect("rope", [](C& c, T) { c.p.rope = ATTEST_ROPE_HALF; });
  expect("softcap", [](C& c, T) { c.p.softcap = 30; });
  expect("sink", [](C& c, T t) { c.p.sink = t; });
  expect("dropout", [](C& c, T t) { c.p.keep = t; });
  expect("dropout", [](C& c, T) { c.p.dropout_p = 0.5; });
  expect("lse", [](C& c, T) { c.p.lse = c.o.dl(); });
}

TEST(Plugin, UnknownValuesAreRefusedForEveryKernel) {
  for (const auto& [field, name] :
       {std::pair{&attest_attention::base, "base=9 is unknown"},
        std::pair{&attest_attention::align, "align=9 is unknown"},
        std::pair{&attest_attention::alibi, "alibi=9 is unknown"},
        std::pair{&attest_attention::alibi_inside_softcap, "alibi_inside_softcap=9 is unknown"},
        std::pair{&attest_attention::rope, "rope=9 is unknown"},
        std::pair{&attest_attention::reserved_end, "a reserved field is not 0"}}) {
    Call call;
    call.p.*field = 9;
    EXPECT_EQ(call.forward(), ATTEST_UNSUPPORTED);
    EXPECT_STREQ(call.message, name);
  }
}

}  // namespace
}  // namespace attest::testing
