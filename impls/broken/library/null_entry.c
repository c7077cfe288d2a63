/* SPDX-License-Identifier: Apache-2.0
 * An entry that serves no version of the contract. */
#include <stddef.h>

#include "attest/plugin.h"

const attest_plugin* attest_plugin_entry(uint32_t host_abi_version) {
  (void)host_abi_version;
  return NULL;
}
