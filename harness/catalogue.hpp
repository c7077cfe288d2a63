// SPDX-License-Identifier: Apache-2.0
// What a library of planted faults holds (attest/faults.h), read once and copied.
#pragma once

#include <string>
#include <vector>

#include "attest/dtype.hpp"
#include "attest/result.hpp"

namespace attest {

/// A mistake or an honest variant; `id.dtype` is a kernel of the library for each of `dtypes`.
struct CatalogueEntry {
  std::string id, kind, sentence, reference;
  std::string base;  ///< the honest entry that a fault differs from by the mistake alone
  std::vector<DType> dtypes;
  bool honest = false;
  bool whole = false;  ///< an honest entry: `id` is a kernel of the library too, of all `dtypes`
};

struct Catalogue {
  std::string path;  ///< of the library
  std::vector<CatalogueEntry> entries;
};

/// Loads the library into this process: it is one of Attest's own. Refuses a table that contradicts
/// itself (an id twice, an unknown dtype, a fault whose base is not an honest entry in each of its
/// dtypes); the error is one line with the path.
Result<Catalogue> load_catalogue(const std::string& path);

/// "causal_top_left.bf16"
std::string kernel_of(const CatalogueEntry& entry, DType dtype);
std::string kernel_of(const std::string& id, DType dtype);

}  // namespace attest
