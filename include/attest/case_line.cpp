// SPDX-License-Identifier: Apache-2.0
// One table row per key: how to read its value and when to print it. Lines are printed in the
// order of the table.
#include "attest/case_line.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "attest/names.hpp"
#include "attest/text.hpp"

namespace attest {
namespace {

using Problem = AttentionProblem;
constexpr std::string_view kOperationPrefix = "attention.";

struct Key {
  std::string_view name;
  /// What is wrong with the value; empty where it was read.
  std::string (*read)(std::string_view text, Problem& problem);
  /// The value; empty where it is the default and stays unprinted.
  std::string (*print)(const Problem& problem);
};

const Problem& defaults() {
  static const Problem problem;
  return problem;
}

std::string not_a(std::string_view what, std::string_view text) {
  return fmt::format("{} is not {}", quote(text), what);
}

template <class E>
std::string read_enum(std::string_view text, E& value) {
  if (const auto known = parse_enum<E>(text)) {
    value = *known;
    return {};
  }
  return fmt::format("{} is none of {}", quote(text), fmt::join(kNamesOf<E>, ", "));
}

std::string read_flag(std::string_view text, bool& value) {
  if (text != "0" && text != "1") return not_a("0 or 1", text);
  value = text == "1";
  return {};
}

template <auto kField>
constexpr Key integer(std::string_view name) {
  return {name,
          [](std::string_view text, Problem& problem) -> std::string {
            const auto value = read_integer(text);
            if (!value) return not_a("a 64-bit integer", text);
            problem.*kField = *value;
            return {};
          },
          [](const Problem& problem) {
            return problem.*kField == defaults().*kField ? "" : std::to_string(problem.*kField);
          }};
}

template <auto kField>
constexpr Key number(std::string_view name) {
  return {name,
          [](std::string_view text, Problem& problem) -> std::string {
            const auto value = read_number(text);
            if (!value) return not_a("a number", text);
            problem.*kField = *value;
            return {};
          },
          [](const Problem& problem) {
            return problem.*kField == defaults().*kField ? "" : print_number(problem.*kField);
          }};
}

template <auto kField>
constexpr Key choice(std::string_view name) {
  return {name,
          [](std::string_view text, Problem& problem) { return read_enum(text, problem.*kField); },
          [](const Problem& problem) {
            return problem.*kField == defaults().*kField ? ""
                                                         : std::string(enum_name(problem.*kField));
          }};
}

template <auto kField>
constexpr Key flag(std::string_view name) {
  return {name,
          [](std::string_view text, Problem& problem) { return read_flag(text, problem.*kField); },
          [](const Problem& problem) -> std::string {
            return problem.*kField == defaults().*kField ? "" : problem.*kField ? "1" : "0";
          }};
}

template <auto kField>
constexpr Key integers(std::string_view name) {
  return {
      name,
      [](std::string_view text, Problem& problem) -> std::string {
        for (std::string_view piece : split(text, ',')) {
          const auto value = read_integer(piece);
          if (!value) return not_a("a 64-bit integer", piece);
          (problem.*kField).push_back(*value);
        }
        return {};
      },
      [](const Problem& problem) { return fmt::format("{}", fmt::join(problem.*kField, ",")); }};
}

template <auto kField>
constexpr Key literal(std::string_view name) {
  return {name,
          [](std::string_view text, Problem& problem) -> std::string {
            for (std::string_view piece : split(text, ',')) {
              const auto value = read_number(piece);
              if (!value) return not_a("a number", piece);
              (problem.literal.*kField).push_back(*value);
            }
            return {};
          },
          [](const Problem& problem) {
            std::string text;
            for (double value : problem.literal.*kField) {
              if (!text.empty()) text += ',';
              text += print_number(value);
            }
            return text;
          }};
}

std::string print_axes(const Axes& axes) {
  std::string text;
  if (axes.b) text += 'b';
  if (axes.h) text += 'h';
  if (axes.q) text += 'q';
  if (axes.k) text += 'k';
  return text.empty() ? "-" : text;
}

/// A subset of "bhqk" in that order, "-" for none.
template <auto kField>
constexpr Key axes(std::string_view name) {
  return {
      name,
      [](std::string_view text, Problem& problem) -> std::string {
        for (unsigned bits = 0; bits < 16; ++bits) {
          const Axes candidate{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
          if (print_axes(candidate) != text) continue;
          problem.*kField = candidate;
          return {};
        }
        return not_a("a subset of bhqk in that order, or -", text);
      },
      [](const Problem& problem) {
        return problem.*kField == Axes{} ? "" : print_axes(problem.*kField);
      }};
}

/// "first,second", as for window=16,0.
template <auto kFirst, auto kSecond>
std::string read_pair(std::string_view text, Problem& problem) {
  const auto pieces = split(text, ',');
  if (pieces.size() != 2) return not_a("two integers with a comma", text);
  const auto first = read_integer(pieces[0]);
  const auto second = read_integer(pieces[1]);
  if (!first || !second) return not_a("two integers with a comma", text);
  problem.*kFirst = *first;
  problem.*kSecond = *second;
  return {};
}

std::string read_t5(std::string_view text, Problem& problem) {
  constexpr std::string_view kWhat = "buckets,max_distance,bidirectional or ...,causal";
  const auto pieces = split(text, ',');
  if (pieces.size() != 3) return not_a(kWhat, text);
  const auto buckets = read_integer(pieces[0]);
  const auto max_distance = read_integer(pieces[1]);
  if (!buckets || !max_distance || (pieces[2] != "bidirectional" && pieces[2] != "causal"))
    return not_a(kWhat, text);
  problem.t5_buckets = *buckets;
  problem.t5_max_distance = *max_distance;
  problem.t5_bidirectional = pieces[2] == "bidirectional";
  return {};
}

std::string print_t5(const Problem& problem) {
  const Problem& plain = defaults();
  if (problem.t5_buckets == plain.t5_buckets && problem.t5_max_distance == plain.t5_max_distance &&
      problem.t5_bidirectional == plain.t5_bidirectional)
    return {};
  return fmt::format("{},{},{}", problem.t5_buckets, problem.t5_max_distance,
                     problem.t5_bidirectional ? "bidirectional" : "causal");
}

std::string read_gradients(std::string_view text, Problem& problem) {
  for (std::string_view piece : split(text, ',')) {
    Gradient gradient{};
    if (auto wrong = read_enum(piece, gradient); !wrong.empty()) return wrong;
    problem.no_gradient[static_cast<std::size_t>(gradient)] = true;
  }
  return {};
}

std::string print_gradients(const Problem& problem) {
  std::string text;
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    if (!problem.no_gradient[n]) continue;
    if (!text.empty()) text += ',';
    text += enum_name(static_cast<Gradient>(n));
  }
  return text;
}

constexpr Key kKeys[] = {
    choice<&Problem::dtype>("dtype"),
    integer<&Problem::batch>("b"),
    integer<&Problem::num_heads>("hq"),
    {"hkv", integer<&Problem::num_kv_heads>("").read,
     [](const Problem& p) {
       return p.num_kv_heads == p.num_heads ? "" : std::to_string(p.num_kv_heads);
     }},
    integer<&Problem::q_len>("lq"),
    integer<&Problem::kv_len>("lk"),
    integer<&Problem::head_dim>("d"),
    {"dv", integer<&Problem::v_head_dim>("").read,
     [](const Problem& p) {
       return p.v_head_dim == p.head_dim ? "" : std::to_string(p.v_head_dim);
     }},
    {"scale",
     [](std::string_view text, Problem& p) -> std::string {
       p.scale = read_number(text);
       return p.scale ? "" : not_a("a number", text);
     },
     [](const Problem& p) { return p.scale ? print_number(*p.scale) : ""; }},
    number<&Problem::softcap>("softcap"),
    number<&Problem::dropout_p>("dropout"),
    choice<&Problem::base>("base"),
    integers<&Problem::prefix_len>("prefix_len"),
    choice<&Problem::align>("align"),
    integers<&Problem::q_offset>("q_offset"),
    {"window", read_pair<&Problem::window_left, &Problem::window_right>,
     [](const Problem& p) {
       return p.window_left == -1 && p.window_right == -1
                  ? ""
                  : fmt::format("{},{}", p.window_left, p.window_right);
     }},
    integer<&Problem::global_tokens>("global_tokens"),
    integers<&Problem::seqlens_q>("seqlens_q"),
    integers<&Problem::seqlens_k>("seqlens_k"),
    integers<&Problem::left_pad_q>("left_pad_q"),
    integers<&Problem::left_pad_k>("left_pad_k"),
    integers<&Problem::cu_seqlens_q>("cu_seqlens_q"),
    integers<&Problem::cu_seqlens_k>("cu_seqlens_k"),
    choice<&Problem::mask>("mask"),
    axes<&Problem::mask_axes>("mask_axes"),
    choice<&Problem::bias>("bias"),
    axes<&Problem::bias_axes>("bias_axes"),
    {"t5", read_t5, print_t5},
    {"blocks",
     [](std::string_view text, Problem& p) {
       p.blocks = true;
       return read_pair<&Problem::block_q, &Problem::block_k>(text, p);
     },
     [](const Problem& p) { return p.blocks ? fmt::format("{},{}", p.block_q, p.block_k) : ""; }},
    axes<&Problem::block_axes>("block_axes"),
    choice<&Problem::alibi>("alibi"),
    flag<&Problem::alibi_inside_softcap>("alibi_inside"),
    choice<&Problem::slopes>("slopes"),
    choice<&Problem::sink>("sink"),
    choice<&Problem::rope>("rope"),
    integer<&Problem::rope_dim>("rope_dim"),
    number<&Problem::rope_base>("rope_base"),
    number<&Problem::rope_scale>("rope_scale"),
    number<&Problem::rope_ntk>("rope_ntk"),
    flag<&Problem::rope_inverse>("rope_inverse"),
    integers<&Problem::positions>("positions"),
    choice<&Problem::empty_output>("empty_output"),
    choice<&Problem::empty_lse>("empty_lse"),
    flag<&Problem::want_lse>("lse"),
    {"no_gradient", read_gradients, print_gradients},
    flag<&Problem::d_lse>("d_lse"),
    choice<&Problem::d_o_data>("d_o_data"),
    {"d_o_layout",
     [](std::string_view text, Problem& p) { return read_enum(text, p.d_o_layout.emplace()); },
     [](const Problem& p) { return p.d_o_layout ? std::string(enum_name(*p.d_o_layout)) : ""; }},
    choice<&Problem::cache>("cache"),
    integer<&Problem::cache_rows>("cache_rows"),
    integer<&Problem::page_size>("page_size"),
    choice<&Problem::pages>("pages"),
    flag<&Problem::cache_rotated>("cache_rotated"),
    integer<&Problem::num_splits>("splits"),
    choice<&Problem::layout>("layout"),
    choice<&Problem::data>("data"),
    {"v_data",
     [](std::string_view text, Problem& p) { return read_enum(text, p.v_data.emplace()); },
     [](const Problem& p) { return p.v_data ? std::string(enum_name(*p.v_data)) : ""; }},
    {"seed",
     [](std::string_view text, Problem& p) -> std::string {
       const auto value = read_unsigned(text);
       p.seed = value.value_or(0);
       return value ? "" : not_a("an integer from 0 to 2^64-1", text);
     },
     [](const Problem& p) { return p.seed == 0 ? "" : std::to_string(p.seed); }},
    literal<&Literal::q>("q"),
    literal<&Literal::k>("k"),
    literal<&Literal::v>("v"),
    literal<&Literal::bias>("bias_values"),
    literal<&Literal::mask>("mask_values"),
    literal<&Literal::blocks>("block_values"),
    literal<&Literal::keep>("keep_values"),
    literal<&Literal::sink>("sink_values"),
    literal<&Literal::slopes>("slope_values"),
    literal<&Literal::d_o>("d_o_values"),
    literal<&Literal::d_lse>("d_lse_values"),
};
constexpr std::size_t kNumKeys = std::size(kKeys);

std::optional<std::size_t> find_key(std::string_view name) {
  for (std::size_t i = 0; i < kNumKeys; ++i)
    if (kKeys[i].name == name) return i;
  return std::nullopt;
}

Error at(std::size_t column, std::string_view what) {
  return {fmt::format("case line, column {}: {}", column, what)};
}

}  // namespace

std::string print_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer{};  // the longest double has 24 characters
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string print_case(const Problem& problem) {
  std::string line = fmt::format("{}{}", kOperationPrefix, enum_name(problem.operation));
  for (const Key& key : kKeys) {
    const std::string value = key.print(problem);
    if (value.empty()) continue;
    line += ' ';
    line += key.name;
    line += '=';
    line += value;
  }
  return line;
}

Result<Problem> parse_case(std::string_view line) {
  if (line.size() > kMostTextBytes)
    return Error{
        fmt::format("case line: {} bytes long; at most {} are read", line.size(), kMostTextBytes)};
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (const auto column = unprintable_column(line))
    return at(*column, "a byte that is not printable ASCII");
  const auto words = split_words(line);
  if (words.empty()) return Error{"case line: empty; it starts with attention.forward"};
  const std::string_view first = words.front().text;
  const auto operation = first.starts_with(kOperationPrefix)
                             ? parse_enum<Operation>(first.substr(kOperationPrefix.size()))
                             : std::nullopt;
  if (!operation)
    return at(words.front().column,
              fmt::format("{} is no operation; a case line starts with attention.forward, "
                          "attention.backward, attention.decode or attention.rope",
                          quote(first)));
  Problem problem;
  problem.operation = *operation;
  std::array<bool, kNumKeys> seen{};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto [text, column] = words[i];
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const auto key = find_key(name);
    if (!key) return at(column, fmt::format("{} is no key of a case line", quote(name)));
    if (equals == std::string_view::npos) return at(column, fmt::format("{} has no '='", name));
    if (seen[*key]) return at(column, fmt::format("{} is given twice", name));
    seen[*key] = true;
    const std::string_view value = text.substr(equals + 1);
    if (value.empty()) return at(column, fmt::format("{} has no value", name));
    if (const std::string wrong = kKeys[*key].read(value, problem); !wrong.empty())
      return at(column, fmt::format("{}: {}", name, wrong));
  }
  if (!seen[*find_key("hkv")]) problem.num_kv_heads = problem.num_heads;
  if (!seen[*find_key("dv")]) problem.v_head_dim = problem.head_dim;
  if (auto error = problem_error(problem)) return Error{"case line: " + *error};
  return problem;
}

}  // namespace attest
