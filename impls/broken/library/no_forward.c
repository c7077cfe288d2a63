/* SPDX-License-Identifier: Apache-2.0
 * A plug-in that offers no operation. */
#include "attest/plugin.h"

static const attest_plugin plugin = {
    .struct_size = sizeof(attest_plugin),
    .abi_version = ATTEST_ABI_VERSION,
    .name = "no_forward",
    .version = "1.0",
    .declaration = "dtype=f32",
    .device_type = kDLCPU,
};

const attest_plugin* attest_plugin_entry(uint32_t host_abi_version) {
  (void)host_abi_version;
  return &plugin;
}
