/* SPDX-License-Identifier: Apache-2.0
 * A plug-in of another version of the contract. */
#include "attest/plugin.h"

static const attest_plugin plugin = {
    .struct_size = sizeof(attest_plugin),
    .abi_version = 99,
    .name = "wrong_abi",
    .version = "1.0",
    .declaration = "dtype=f32",
    .device_type = kDLCPU,
};

const attest_plugin* attest_plugin_entry(uint32_t host_abi_version) {
  (void)host_abi_version;
  return &plugin;
}
