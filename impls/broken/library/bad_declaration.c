/* SPDX-License-Identifier: Apache-2.0
 * A declaration that contradicts itself: global tokens without a window. */
#include "attest/plugin.h"

static attest_status forward(void* state, void* plan, const attest_attention* problem,
                             attest_context* context) {
  (void)state, (void)plan, (void)problem, (void)context;
  return ATTEST_UNSUPPORTED;
}

static const attest_plugin plugin = {
    .struct_size = sizeof(attest_plugin),
    .abi_version = ATTEST_ABI_VERSION,
    .name = "bad_declaration",
    .version = "1.0",
    .declaration = "dtype=f32 global_tokens",
    .device_type = kDLCPU,
    .forward = forward,
};

const attest_plugin* attest_plugin_entry(uint32_t host_abi_version) {
  (void)host_abi_version;
  return &plugin;
}
