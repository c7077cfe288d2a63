// SPDX-License-Identifier: Apache-2.0
// How a fault is planted. One class template that overrides a step of the stepwise kernel, and one
// line:
//
//   template <class S>
//   struct CausalStrict : Stepwise<S> {
//     bool base_allows(const Query& q, const Key& k) const override { ... }
//   };
//   ATTEST_PLANT(CausalStrict, {.id = "causal_strict", .kind = "mask", .sentence = "..."});
//
// Each type that it lists becomes a kernel `causal_strict.f32` of this library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "attest/faults.h"
#include "attest/plugin.hpp"
#include "impls/faulty/stepwise.hpp"
#include "impls/faulty/stepwise_decode.hpp"
#include "impls/storage.hpp"

namespace attest::faulty {

inline constexpr const char* kAllTypes = "f64,f32,f16,bf16";
inline constexpr const char* kWideTypes = "f64,f32";
inline constexpr const char* kNarrowTypes = "f16,bf16";

/// What the stepwise kernel declares beyond its type.
inline constexpr const char* kStepwise =
    "features=all precision=mma_f32acc deterministic batch_invariant thread_invariant "
    "masked_nan_safe";

/// What the backward kernel declares: the same, and every gradient.
inline constexpr const char* kBackward =
    "features=all backward=all precision=mma_f32acc deterministic batch_invariant "
    "thread_invariant masked_nan_safe";

/// What the decode kernel declares. It does nothing else: what is planted in the steps that it
/// shares with forward is a fault of the stepwise kernel.
inline constexpr const char* kDecode =
    "features=all forward=none cache=contiguous,ring,paged cache_keys=raw,rotated splits "
    "precision=mma_f32acc deterministic batch_invariant thread_invariant masked_nan_safe";

struct Plant {
  const char* id;
  const char* kind;
  const char* sentence;
  const char* reference = "";
  const char* dtypes = kAllTypes;
  const char* base = "stepwise";
  const char* declares = kStepwise;
  bool honest = false;  ///< set by ATTEST_HONEST
};

/// A kind of StepwiseBackward.
template <class Kind>
concept Differentiates = requires(Kind kernel, const attest_attention& problem, const Sizes& sizes,
                                  const Context& context) {
  kernel.serve_backward(problem, sizes, context);
};

/// A kind of StepwiseDecode.
template <class Kind>
concept Decodes = requires(Kind kernel, const attest_attention& problem, const Sizes& sizes,
                           const Context& context) {
  kernel.serve_decode(problem, sizes, context);
};

/// A kind of RopeSteps.
template <class Kind>
concept Turns = requires(Kind kernel, const RopeCall& call, const Context& context) {
  kernel.serve_rope(call, context);
};

/// One kernel: a kind of Stepwise that serves its one type.
template <class Kind>
class Planted : public Kernel {
 public:
  void forward(const attest_attention& problem, const Context& context) override {
    if constexpr (Decodes<Kind> || Turns<Kind>) {
      Kernel::forward(problem, context);
    } else {
      Kind kernel;
      kernel.serve(problem, served(read_sizes(problem)), context);
    }
  }
  void backward(const attest_attention& problem, const Context& context) override {
    if constexpr (Differentiates<Kind>) {
      const Sizes sizes = served(read_sizes(problem));
      check_gradients(problem, sizes);
      Kind kernel;
      kernel.serve_backward(problem, sizes, context);
    } else {
      Kernel::backward(problem, context);
    }
  }
  void decode(const attest_attention& problem, const Context& context) override {
    if constexpr (Decodes<Kind>) {
      Kind kernel;
      kernel.serve_decode(problem, served(read_decode_sizes(problem)), context);
    } else {
      Kernel::decode(problem, context);
    }
  }
  void rope(const RopeCall& call, const Context& context) override {
    if constexpr (Turns<Kind>) {
      check_served(dtype_of(call.x->dtype));
      Kind kernel;
      kernel.serve_rope(call, context);
    } else {
      Kernel::rope(call, context);
    }
  }
  std::unique_ptr<Plan> plan(const std::string&, const attest_attention& problem,
                             const Context&) override {
    auto plan = std::make_unique<Plan>();
    plan->workspace_bytes = Kind::workspace_bytes(problem);
    return plan;
  }

 private:
  static const Sizes& served(const Sizes& sizes) {
    check_served(sizes.dtype);
    return sizes;
  }
  static void check_served(std::optional<DType> dtype) {
    bool served = false;
    if (dtype)
      with_storage(*dtype, [&](auto storage) {
        served = std::is_same_v<typename Kind::StorageType, decltype(storage)>;
      });
    if (!served) throw Unsupported("this kernel serves another element type");
  }
};

/// Whether `types`, "f64,f32", has the type.
bool lists(std::string_view types, DType type);

/// The kinds of an honest variant as one kernel.
template <template <class> class Kind>
class PlantedInAllTypes : public Kernel {
 public:
  inline static std::string_view types;  ///< that it serves
  void forward(const attest_attention& problem, const Context& context) override {
    kernel_for(problem)->forward(problem, context);
  }
  void backward(const attest_attention& problem, const Context& context) override {
    kernel_for(problem)->backward(problem, context);
  }
  void decode(const attest_attention& problem, const Context& context) override {
    kernel_for(problem)->decode(problem, context);
  }
  void rope(const RopeCall& call, const Context& context) override {
    kernel_of(dtype_of(call.x->dtype))->rope(call, context);
  }
  std::unique_ptr<Plan> plan(const std::string& operation, const attest_attention& problem,
                             const Context& context) override {
    return kernel_for(problem)->plan(operation, problem, context);
  }

 private:
  static std::unique_ptr<Kernel> kernel_for(const attest_attention& problem) {
    return kernel_of(dtype_of(problem.q->dtype));
  }
  static std::unique_ptr<Kernel> kernel_of(std::optional<DType> type) {
    if (!type || !lists(types, *type)) throw Unsupported("this kernel serves other element types");
    std::unique_ptr<Kernel> kernel;
    with_storage(*type, [&](auto storage) {
      kernel = std::make_unique<Planted<Kind<decltype(storage)>>>();
    });
    return kernel;
  }
};

/// Adds a kernel for `type` to the library, in the order of the names, if the plant lists it.
void add_kernel(const Plant& plant, DType type, attest_plugin table);
/// Adds the kernel of all listed types.
void add_kernel(const Plant& plant, attest_plugin table);
void add_to_catalogue(const Plant& plant);

template <template <class> class Kind>
bool plant(const Plant& plant) {
  for (const DType type : kAllDTypes)
    with_storage(type, [&](auto storage) {
      add_kernel(plant, type,
                 detail::table<Planted<Kind<decltype(storage)>>>(nullptr, "1.0", nullptr));
    });
  add_to_catalogue(plant);
  return true;
}

template <template <class> class Kind>
bool plant_honest(Plant variant) {
  variant.honest = true;
  PlantedInAllTypes<Kind>::types = variant.dtypes;
  add_kernel(variant, detail::table<PlantedInAllTypes<Kind>>(nullptr, "1.0", nullptr));
  return plant<Kind>(variant);
}

}  // namespace attest::faulty

/// ATTEST_PLANT(Template, {fields of Plant}); at namespace scope of a source file.
#define ATTEST_PLANT(Template, ...)                       \
  [[maybe_unused]] static const bool planted_##Template = \
      ::attest::faulty::plant<Template>(__VA_ARGS__)
/// The same for a variant without a mistake: it is also one kernel of all its types, of the name
/// of its id.
#define ATTEST_HONEST(Template, ...)                      \
  [[maybe_unused]] static const bool planted_##Template = \
      ::attest::faulty::plant_honest<Template>(__VA_ARGS__)
