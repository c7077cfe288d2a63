// SPDX-License-Identifier: Apache-2.0
// A plug-in built when attest_plugin ended before `component`: what lies behind is not its own.
#include <cstddef>

#include "impls/broken/simple.hpp"

namespace attest::broken {
namespace {

attest_plugin shorter() {
  attest_plugin plugin = detail::table<Simple>("shorter_struct", "1.0", kSimple);
  plugin.struct_size = offsetof(attest_plugin, component);
  std::memset(reinterpret_cast<char*>(&plugin) + plugin.struct_size, 0xdb,
              sizeof plugin - plugin.struct_size);
  return plugin;
}
attest_plugin plugin = shorter();
[[maybe_unused]] const bool registered = detail::append(&plugin);

}  // namespace
}  // namespace attest::broken
