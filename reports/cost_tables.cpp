// SPDX-License-Identifier: Apache-2.0
// Costs as tables: what a person reads of attest.cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attest/dtype.hpp"
#include "reports/cost.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

std::string bytes_of(double bytes) {
  return bytes < 9e18 ? bytes_text(static_cast<std::int64_t>(bytes)) : si_text(bytes) + "B";
}

/// Of parameters and activations; a record's dtype may be anything.
double element_bytes(const CostRecord& record) {
  return static_cast<double>(size_of(parse_dtype(record.dtype).value_or(DType::bf16)));
}

/// What a person means by FLOPs: in teaching texts a multiply-add is one.
double in_convention(double matrix, bool multiply_adds) {
  return multiply_adds ? matrix / 2 : matrix;
}

double total(const CostFlops& flops, bool multiply_adds) {
  return in_convention(flops.matrix, multiply_adds) + flops.softmax + flops.other;
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string sentence(const CostRecord& record) {
  const CostVariant& own = record.variants.front();
  if (own.parts.empty()) return plain(record.model);
  const std::string what =
      record.phase == "decode"
          ? fmt::format("the next token of {}, {} cached", counted(record.batch, "sequence"),
                        grouped(record.seq - 1))
          : fmt::format("{} x {} tokens", record.batch, grouped(record.seq));
  return fmt::format("{}, {} of {} in {}: {} parameters ({})", plain(record.model), record.phase,
                     what, record.dtype, si_text(own.parameters),
                     bytes_of(own.parameters * element_bytes(record)));
}

Table flops_table(const CostRecord& record, bool multiply_adds) {
  const CostVariant& own = record.variants.front();
  Table table{multiply_adds ? "FLOPs of all layers (a multiply-add counts 1)"
                            : "FLOPs of all layers (a multiply-add counts 2)",
              {{"part", false},
               {"products", false},
               {"matrix"},
               {"softmax"},
               {"other"},
               {"total"},
               {"share"},
               {"parameters"}},
              {}};
  double sum = 0;
  for (const CostPart& part : own.parts) sum += total(part.flops, multiply_adds);
  if (!own.attention.empty()) sum += total(own.attention.front().flops, multiply_adds);
  const auto add = [&](const std::string& name, const std::string& formula, const CostFlops& flops,
                       double parameters) {
    table.rows.push_back({name, formula, si_text(in_convention(flops.matrix, multiply_adds)),
                          si_text(flops.softmax), si_text(flops.other),
                          si_text(total(flops, multiply_adds)),
                          fmt::format("{:.1f} %", 100 * total(flops, multiply_adds) / sum),
                          parameters > 0 ? si_text(parameters) : ""});
  };
  CostFlops all;
  const auto take = [&all](const CostFlops& flops) {
    all.matrix += flops.matrix, all.softmax += flops.softmax, all.other += flops.other;
  };
  for (const CostPart& part : own.parts) {
    add(part.name, part.formula, part.flops, part.parameters);
    take(part.flops);
  }
  if (!own.attention.empty()) {
    const CostAttention& first = own.attention.front();
    add("attention (" + first.implementation + ")", "", first.flops, 0);
    take(first.flops);
  }
  add("all", "", all, own.parameters);
  return table;
}

Table attention_table(const CostRecord& record, bool multiply_adds) {
  const bool train = record.phase == "train", timed = !record.machine.empty();
  Table table{fmt::format("Attention: {} visible pairs{}", si_text(record.visible_pairs),
                          timed ? ", time by the roofline of " + plain(record.machine) : ""),
              {{"heads", false},
               {"way", false},
               {"matrix"},
               {"softmax"},
               {"other"},
               {"bytes moved"},
               {"FLOP/byte"},
               {"peak extra"}},
              {}};
  if (train) table.columns.push_back({"saved"});
  if (timed) table.columns.insert(table.columns.end(), {{"time"}, {"bound by", false}});
  for (const CostVariant& variant : record.variants)
    for (const CostAttention& way : variant.attention) {
      std::vector<std::string> row{fmt::format("{} ({})", variant.heads, variant.kv_heads),
                                   way.implementation,
                                   si_text(in_convention(way.flops.matrix, multiply_adds)),
                                   si_text(way.flops.softmax),
                                   si_text(way.flops.other),
                                   bytes_of(way.bytes),
                                   fmt::format("{:.3g}", way.intensity),
                                   bytes_of(way.extra_bytes)};
      if (train) row.push_back(bytes_of(way.saved_bytes));
      if (timed) {
        row.push_back(way.seconds ? seconds_text(*way.seconds) : "-");
        row.push_back(way.bound);
      }
      table.rows.push_back(std::move(row));
    }
  return table;
}

Table cache_table(const CostRecord& record) {
  const double mha = [&] {
    for (const CostVariant& variant : record.variants)
      if (variant.heads == "mha") return variant.cache_bytes;
    return 0.0;
  }();
  Table table{fmt::format("Keys and values in {} for {} x {} tokens", record.cache_dtype,
                          record.batch, grouped(record.seq)),
              {{"heads", false}, {"a token"}, {"cache"}, {"parameters"}},
              {}};
  if (mha > 0 && record.variants.size() > 1) table.columns.push_back({"saved of mha"});
  for (const CostVariant& variant : record.variants) {
    std::vector<std::string> row{fmt::format("{} ({})", variant.heads, variant.kv_heads),
                                 bytes_of(variant.cache_bytes_per_token),
                                 bytes_of(variant.cache_bytes), si_text(variant.parameters)};
    if (table.columns.size() > row.size())
      row.push_back(fmt::format("{:.6g} %", 100 * (1 - variant.cache_bytes / mha)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What a device holds in a training step: AdamW on f32 moments and an f32 copy of the parameters.
Table training_table(const CostRecord& record) {
  const CostVariant& own = record.variants.front();
  const double element = element_bytes(record);
  double activations = 0;
  for (const CostPart& part : own.parts) activations += part.saved_bytes;
  Table table{"Memory of a training step, nothing recomputed or sharded",
              {{"way", false},
               {"parameters"},
               {"gradients"},
               {"AdamW (f32)"},
               {"activations"},
               {"of attention"},
               {"all"}},
              {}};
  for (const CostAttention& way : own.attention) {
    const double weights = element * own.parameters, states = 12 * own.parameters;
    table.rows.push_back({way.implementation, bytes_of(weights), bytes_of(weights),
                          bytes_of(states), bytes_of(activations), bytes_of(way.saved_bytes),
                          bytes_of(2 * weights + states + activations + way.saved_bytes)});
  }
  return table;
}

}  // namespace

std::string si_text(double value) {
  if (value == 0) return "0";
  for (const char* unit : {"", " k", " M", " G", " T", " P", " E"}) {
    if (std::fabs(value) < 999.5) {
      std::string text = fmt::format("{:.3g}", value);
      return text + unit;
    }
    value /= 1000;
  }
  return fmt::format("{:.3g} Z", value);
}

std::vector<Table> cost_tables(const CostRecord& record, bool multiply_adds) {
  if (record.variants.front().parts.empty()) return {attention_table(record, multiply_adds)};
  std::vector<Table> tables{flops_table(record, multiply_adds)};
  if (!record.variants.front().attention.empty())
    tables.push_back(attention_table(record, multiply_adds));
  if (record.phase == "train" && !record.variants.front().attention.empty())
    tables.push_back(training_table(record));
  if (record.phase != "train") tables.push_back(cache_table(record));
  return tables;
}

std::string cost_screen(const CostRecord& record, bool multiply_adds) {
  std::string text = sentence(record) + '\n';
  for (const Table& table : cost_tables(record, multiply_adds))
    text += '\n' + terminal_table(table);
  return text;
}

std::string cost_markdown(const CostRecord& record, bool multiply_adds) {
  std::string text = markdown_escape(sentence(record)) + '\n';
  for (const Table& table : cost_tables(record, multiply_adds))
    text += '\n' + markdown_table(table);
  return text;
}

std::string cost_csv(const CostRecord& record) {
  const auto number = [](double x) { return fmt::format("{:.17g}", x); };
  Table table{"",
              {{"model"},
               {"phase"},
               {"dtype"},
               {"batch"},
               {"seq"},
               {"heads"},
               {"kv_heads"},
               {"part"},
               {"implementation"},
               {"matrix_flops"},
               {"softmax_flops"},
               {"other_flops"},
               {"bytes"},
               {"extra_bytes"},
               {"saved_bytes"},
               {"parameters"},
               {"seconds"}},
              {}};
  for (const CostVariant& variant : record.variants) {
    const auto add = [&](const std::string& part, const std::string& way, const CostFlops& flops,
                         double bytes, double extra, double saved, double parameters,
                         const std::string& seconds) {
      table.rows.push_back({record.model, record.phase, record.dtype, std::to_string(record.batch),
                            std::to_string(record.seq), variant.heads,
                            std::to_string(variant.kv_heads), part, way, number(flops.matrix),
                            number(flops.softmax), number(flops.other), number(bytes),
                            number(extra), number(saved), number(parameters), seconds});
    };
    for (const CostPart& part : variant.parts)
      add(part.name, "", part.flops, part.bytes, 0, part.saved_bytes, part.parameters, "");
    for (const CostAttention& way : variant.attention)
      add("attention", way.implementation, way.flops, way.bytes, way.extra_bytes, way.saved_bytes,
          0, way.seconds ? number(*way.seconds) : "");
    add("cache", "", {}, variant.cache_bytes, 0, 0, 0, "");
  }
  return csv_table(table);
}

}  // namespace attest
