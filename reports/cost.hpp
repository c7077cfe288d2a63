// SPDX-License-Identifier: Apache-2.0
// Models, machines and costs, from and to text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/cost.hpp"
#include "attest/result.hpp"
#include "reports/table.hpp"

namespace attest {

/// Strict, as reports/reader.hpp. What fits together (heads a multiple of kv_heads, ...) is checked
/// too: a model that is read can be costed.
Result<ModelShape> read_model(std::string_view json);
Result<ModelShape> read_model_file(const std::string& path);
Result<MachineShape> read_machine_file(const std::string& path);
Result<CostRecord> read_cost(std::string_view json);

std::string model_json(const ModelShape& model);
std::string cost_json(const CostRecord& record);

/// What the model's own variant computes; attention by each way; the caches of all variants.
/// `multiply_adds`: in the other convention, where a multiply-add counts one.
std::vector<Table> cost_tables(const CostRecord& record, bool multiply_adds);
std::string cost_screen(const CostRecord& record, bool multiply_adds);
std::string cost_markdown(const CostRecord& record, bool multiply_adds);
/// One line for each part and each way of attention, in plain numbers.
std::string cost_csv(const CostRecord& record);

/// "1.29 T"; three digits.
std::string si_text(double value);

}  // namespace attest
