// SPDX-License-Identifier: Apache-2.0
#include "harness/demands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "attest/names.hpp"
#include "attest/text.hpp"

namespace attest {
namespace {

constexpr std::array<std::string_view, 8> kKinds{"dtype",     "feature",     "head_dim", "promise",
                                                 "precision", "requirement", "cases",    "refused"};
constexpr std::array<std::string_view, 5> kPromises{
    "deterministic", "batch_invariant", "thread_invariant", "masked_nan_safe", "memory=linear"};
constexpr std::int64_t kMostHeadDim = std::int64_t{1} << 16;

struct LineError {
  std::size_t column;
  std::string message;
};
using Wrong = std::optional<LineError>;

bool has(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// "64" or "64-128".
Wrong read_range(const Word& word, Demand& demand) {
  const std::size_t dash = word.text.find('-');
  const auto first = read_integer(word.text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : read_integer(word.text.substr(dash + 1));
  if (!first || !last || *first < 1 || *first > *last || *last > kMostHeadDim)
    return LineError{word.column,
                     quote(word.text) + " is no head dim and no range of them, such as 64-128"};
  demand.first = *first;
  demand.last = *last;
  return std::nullopt;
}

/// "bf16=mma_f32acc"
Wrong read_precision(const Word& word, Demand& demand) {
  const std::size_t equals = word.text.find('=');
  const auto dtype = parse_enum<DType>(word.text.substr(0, equals));
  if (!dtype || equals == std::string_view::npos)
    return LineError{word.column, quote(word.text) + " is not of the form bf16=mma_f32acc"};
  demand.dtype = *dtype;
  demand.word = word.text.substr(equals + 1);
  if (!precision_preset(demand.word, *dtype))
    return LineError{word.column, quote(demand.word) + " is no precision"};
  return std::nullopt;
}

Wrong read_one_word(const Word& word, const std::vector<std::string>& known_requirements,
                    Demand& demand) {
  demand.word = word.text;
  const auto unknown = [&](std::string_view what) {
    return LineError{word.column, quote(word.text) + " is no " + std::string(what)};
  };
  switch (demand.kind) {
    case Demand::Kind::dtype:
      if (!parse_enum<DType>(word.text)) return unknown("dtype");
      break;
    case Demand::Kind::feature:
      if (!parse_feature(word.text)) return unknown("feature");
      break;
    case Demand::Kind::promise:
      if (std::find(kPromises.begin(), kPromises.end(), word.text) == kPromises.end())
        return unknown("promise");
      break;
    case Demand::Kind::requirement:
      if (!has(known_requirements, word.text)) return unknown("requirement");
      break;
    case Demand::Kind::head_dim: return read_range(word, demand);
    default: return read_precision(word, demand);
  }
  return std::nullopt;
}

/// "cases >= 1000", "refused <= 0.1"
Wrong read_bound(const std::vector<Word>& words, Demand& demand) {
  const bool cases = demand.kind == Demand::Kind::cases;
  const std::string_view sign = cases ? ">=" : "<=";
  if (words.size() != 3 || words[1].text != sign)
    return LineError{words[0].column, fmt::format("{} wants {} and a number", words[0].text, sign)};
  const Word& number = words[2];
  if (cases) {
    const auto least = read_integer(number.text);
    if (!least || *least < 1)
      return LineError{number.column, quote(number.text) + " is no number of cases"};
    demand.first = *least;
  } else {
    const auto most = read_number(number.text);
    if (!most || !(*most >= 0 && *most <= 1))
      return LineError{number.column, quote(number.text) + " is no share from 0 to 1"};
    demand.most = *most;
  }
  return std::nullopt;
}

Wrong read_words(const std::vector<Word>& words, const std::vector<std::string>& known_requirements,
                 Demand& demand) {
  const auto* kind = std::find(kKinds.begin(), kKinds.end(), words[0].text);
  if (kind == kKinds.end())
    return LineError{words[0].column, fmt::format("{} cannot be required; {} can",
                                                  quote(words[0].text), fmt::join(kKinds, ", "))};
  demand.kind = static_cast<Demand::Kind>(kind - kKinds.begin());
  if (demand.kind == Demand::Kind::cases || demand.kind == Demand::Kind::refused)
    return read_bound(words, demand);
  if (words.size() != 2)
    return LineError{words[0].column,
                     fmt::format("{} wants one word, got {}", words[0].text, words.size() - 1)};
  return read_one_word(words[1], known_requirements, demand);
}

/// Whether "1-13" or "64" of a record holds the number.
bool holds(const std::string& range, std::int64_t value) {
  const std::size_t dash = range.find('-');
  const auto first = read_integer(std::string_view(range).substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : read_integer(std::string_view(range).substr(dash + 1));
  return first && last && *first <= value && value <= *last;
}

std::string missing_head_dims(const Demand& demand, const Record& record) {
  for (std::int64_t dim = demand.first; dim <= demand.last; ++dim)
    if (std::none_of(record.scope.head_dims.begin(), record.scope.head_dims.end(),
                     [dim](const std::string& range) { return holds(range, dim); }))
      return fmt::format("no case has head_dim {}", dim);
  return "";
}

/// Why the record says that this was not tested.
std::string untested(const std::string& what, const Record& record) {
  for (const std::string& sentence : record.scope.not_tested)
    if (sentence.rfind(what + ": ", 0) == 0) return sentence.substr(what.size() + 2);
  return "not tested";
}

bool promises(const Declaration& declaration, std::string_view promise) {
  const bool kept[] = {declaration.deterministic, declaration.batch_invariant,
                       declaration.thread_invariant, declaration.masked_nan_safe,
                       declaration.memory_linear};
  return kept[std::find(kPromises.begin(), kPromises.end(), promise) - kPromises.begin()];
}

/// No number of it excuses more than the wanted one.
bool at_least_as_tight(const PrecisionProfile& declared, const PrecisionProfile& wanted) {
  constexpr double PrecisionProfile::*kErrors[] = {
      &PrecisionProfile::u_acc,     &PrecisionProfile::c_acc,   &PrecisionProfile::eta_acc,
      &PrecisionProfile::u_in,      &PrecisionProfile::eta_in,  &PrecisionProfile::u_score,
      &PrecisionProfile::eta_score, &PrecisionProfile::u_p,     &PrecisionProfile::eta_p,
      &PrecisionProfile::u_out,     &PrecisionProfile::eta_out, &PrecisionProfile::e_exp,
      &PrecisionProfile::eta_exp,   &PrecisionProfile::u_rope};
  for (const auto error : kErrors)
    if (!(declared.*error <= wanted.*error)) return false;
  const auto score = [](const PrecisionProfile& p) {
    return p.max_score == 0 ? p.max_acc : p.max_score;
  };
  if (!(declared.max_acc >= wanted.max_acc) || !(score(declared) >= score(wanted))) return false;
  // How P is rounded matters where it is.
  const bool same_p = declared.p_normalised == wanted.p_normalised &&
                      declared.l_from_rounded == wanted.l_from_rounded;
  return (declared.u_p == 0 || same_p) && (wanted.lse_merged || !declared.lse_merged);
}

std::string precision_lost(const Demand& demand, const Declaration& declaration,
                           const Record& record) {
  const std::string dtype(name(demand.dtype));
  if (!has(record.scope.dtypes, dtype)) return dtype + " is " + untested(dtype, record);
  const auto index = static_cast<std::size_t>(demand.dtype);
  if (demand.dtype == DType::f64 ||
      at_least_as_tight(declaration.profile[index], *precision_preset(demand.word, demand.dtype)))
    return "";
  return fmt::format("{} is declared{}", declaration.precision[index],
                     declaration.precision[index] == demand.word ? " with other numbers" : "");
}

std::string requirement_lost(const Demand& demand, const Record& record) {
  for (const RequirementResult& result : record.requirements) {
    if (result.id != demand.word) continue;
    if (!result.skipped.empty()) return result.skipped;
    const Counts& counts = result.counts;
    return counts.pass + counts.warn + counts.failures() > 0 ? "" : "no case of it was judged";
  }
  return "it is no part of this run";
}

/// "" where the demand is met.
std::string lost(const Demand& demand, const Declaration& declaration, const Record& record) {
  const Counts& counts = record.counts;
  const std::int64_t judged = counts.pass + counts.warn + counts.failures();
  switch (demand.kind) {
    case Demand::Kind::dtype:
      return has(record.scope.dtypes, demand.word) ? "" : untested(demand.word, record);
    case Demand::Kind::feature:
      return has(record.scope.features, demand.word) ? "" : untested(demand.word, record);
    case Demand::Kind::head_dim: return missing_head_dims(demand, record);
    case Demand::Kind::promise: return promises(declaration, demand.word) ? "" : "not promised";
    case Demand::Kind::precision: return precision_lost(demand, declaration, record);
    case Demand::Kind::requirement: return requirement_lost(demand, record);
    case Demand::Kind::cases:
      return judged >= demand.first ? "" : fmt::format("{} cases were judged", judged);
    case Demand::Kind::refused:
      return record.scope.refused_share <= demand.most
                 ? ""
                 : fmt::format("{:.3g} of the declared cases were refused",
                               record.scope.refused_share);
  }
  return "";
}

}  // namespace

Result<std::vector<Demand>> parse_demands(std::string_view text,
                                          const std::vector<std::string>& known_requirements) {
  if (text.size() > kMostTextBytes)
    return Error{fmt::format("{} bytes long; at most {} are read", text.size(), kMostTextBytes)};
  std::vector<Demand> demands;
  int number = 0;
  for (std::string_view line : split_lines(text)) {
    ++number;
    const auto error = [number](const LineError& wrong) {
      return Error{fmt::format("line {}, column {}: {}", number, wrong.column, wrong.message)};
    };
    line = line.substr(0, line.find('#'));
    if (const auto column = unprintable_column(line))
      return error({*column, "a byte that is not printable ASCII"});
    const std::vector<Word> words = split_words(line);
    if (words.empty()) continue;
    Demand demand;
    if (const Wrong wrong = read_words(words, known_requirements, demand)) return error(*wrong);
    demand.line_number = number;
    for (const Word& word : words)
      demand.line.append(demand.line.empty() ? "" : " ").append(word.text);
    demands.push_back(std::move(demand));
  }
  if (demands.empty()) return Error{"requires nothing"};
  return demands;
}

void check_demands(const std::vector<Demand>& demands, const Declaration& declaration,
                   Record& record) {
  for (const Demand& demand : demands) {
    const std::string detail = lost(demand, declaration, record);
    record.demands.push_back({demand.line, demand.line_number, detail.empty(), detail});
  }
}

}  // namespace attest
