// SPDX-License-Identifier: Apache-2.0
// attest plot weights: what each query looks at, by the output of a kernel.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "attest/case_line.hpp"
#include "attest/text.hpp"
#include "harness/data.hpp"
#include "harness/observe.hpp"
#include "harness/requirement.hpp"
#include "reports/safetensors.hpp"
#include "reports/text.hpp"
#include "reports/weights_plot.hpp"
#include "tools/plot.hpp"

namespace attest {

namespace {

constexpr std::int64_t kMostKeys = 4096;  // v = identity has as many channels
constexpr std::size_t kMostPanels = 256;

/// One layer: a problem and its values.
struct Layer {
  std::int64_t number = 0;
  AttentionProblem problem;
  AttentionInputs inputs;
};

/// The number of a layer or head: up to six digits.
std::optional<std::int64_t> read_number_of_part(std::string_view text) {
  constexpr std::size_t kMostDigits = 6;
  const auto number = read_unsigned(text);
  if (!number || text.size() > kMostDigits) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

/// split(), where a separator ends a piece: none follows the last one.
std::vector<std::string_view> split_ended(std::string_view text, char separator) {
  std::vector<std::string_view> pieces = split(text, separator);
  if (pieces.back().empty()) pieces.pop_back();
  return pieces;
}

std::set<std::int64_t> read_numbers(const Arguments& arguments, const std::string& option) {
  std::set<std::int64_t> numbers;
  const std::string text = arguments.value(option);
  for (const std::string_view word : split_ended(text, ',')) {
    const auto number = read_number_of_part(word);
    if (!number)
      throw CommandError(option + ": '" + plain(word) + "' is no number; a list is 0,1,2");
    numbers.insert(*number);
  }
  return numbers;
}

bool wanted(const std::set<std::int64_t>& numbers, std::int64_t number) {
  return numbers.empty() || numbers.count(number) > 0;
}

Dense<double> identity(std::int64_t heads, std::int64_t keys) {
  Dense<double> v({1, heads, keys, keys});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t j = 0; j < keys; ++j) v.at(0, h, j, j) = 1;
  return v;
}

/// The array as [1, heads, rows, channels] of numbers that the storage type holds.
Dense<double> as_tensor(const NamedArray& array, DType dtype) {
  Dense<double> tensor({1, array.shape[0], array.shape[1], array.shape[2]});
  for (std::size_t i = 0; i < array.values.size(); ++i)
    tensor.values[i] = round_to(dtype, array.values[i]);
  return tensor;
}

/// Layers of "layers.N.q" and "layers.N.k", each [heads, tokens, channels]; or "q" and "k" alone.
std::vector<Layer> layers_of(const Safetensors& file, const std::string& path, bool causal) {
  std::vector<Layer> layers;
  for (const auto& tensor : file.tensors) {
    const std::string& name = tensor.first;
    const NamedArray& q = tensor.second;
    const bool only = name == "q";
    if (!only && (name.rfind("layers.", 0) != 0 || name.size() < 10 ||
                  name.compare(name.size() - 2, 2, ".q") != 0))
      continue;
    const std::string number = only ? "0" : name.substr(7, name.size() - 9);
    const auto fail = [&](const std::string& what) {
      throw CommandError(plain(path) + ": " + plain(name) + ": " + what);
    };
    const auto layer_number = read_number_of_part(number);
    if (!layer_number) fail("is no layers.NUMBER.q");
    const auto k = file.tensors.find(only ? "k" : "layers." + number + ".k");
    if (k == file.tensors.end()) fail("has no k beside it");
    if (q.shape.size() != 3 || k->second.shape.size() != 3)
      fail("q and k must be [heads, tokens, channels]");
    Layer layer;
    layer.number = *layer_number;
    AttentionProblem& p = layer.problem;
    p.num_heads = q.shape[0], p.q_len = q.shape[1], p.head_dim = q.shape[2];
    p.num_kv_heads = k->second.shape[0], p.kv_len = k->second.shape[1];
    if (k->second.shape[2] != p.head_dim) fail("q and k have different channels");
    if (p.kv_len > kMostKeys) fail("has more than 4096 keys");
    p.v_head_dim = p.kv_len;
    p.base = causal ? Base::causal : Base::full;
    if (const auto why = problem_error(p)) fail(*why);
    layer.inputs.q = as_tensor(q, p.dtype);
    layer.inputs.k = as_tensor(k->second, p.dtype);
    layers.push_back(std::move(layer));
  }
  if (layers.empty()) throw CommandError(plain(path) + ": has no tensor layers.0.q, nor q");
  std::sort(layers.begin(), layers.end(),
            [](const Layer& a, const Layer& b) { return a.number < b.number; });
  return layers;
}

Layer layer_of_case(const std::string& line) {
  Layer layer;
  layer.problem = read_case_argument(line);
  AttentionProblem& p = layer.problem;
  if (p.operation != Operation::forward || p.dropout_p > 0)
    throw CommandError("--case: weights are recovered from a forward call without dropout");
  if (p.kv_len > kMostKeys) throw CommandError("--case: more than 4096 keys");
  p.batch = std::min<std::int64_t>(p.batch, 1);
  p.v_head_dim = p.kv_len;
  if (const auto why = problem_error(p)) throw CommandError("--case: " + *why);
  layer.inputs = make_inputs(p);
  return layer;
}

/// P of the kernel, [heads, queries, keys]: with v = identity its output is the weights.
std::vector<double> weights_of(Subject& subject, Layer& layer) {
  const AttentionProblem& p = layer.problem;
  if (const auto why = not_declared(subject.declaration(), p))
    throw CommandError(plain(subject.kernel_name()) + " does not serve this: " + *why);
  layer.inputs.v = identity(p.num_kv_heads, p.kv_len);
  CallOptions options;
  options.limits.cpu_seconds = 60;
  const Observation seen = observe(subject, p, layer.inputs, options);
  if (const auto failed = judge_call(seen, subject.declaration(), p))
    throw CommandError(plain(subject.kernel_name()) + ": " + failed->detail,
                       ExitCode::suite_failed);
  return seen.o;
}

std::vector<std::string> read_tokens(const Arguments& arguments, const Safetensors& file) {
  std::string text;
  if (arguments.has("--tokens"))
    text = read_text_file(arguments.value("--tokens"));
  else if (const auto known = file.metadata.find("tokens"); known != file.metadata.end())
    text = known->second;
  const std::vector<std::string_view> lines = split_ended(text, '\n');
  return {lines.begin(), lines.end()};
}

}  // namespace

ExitCode plot_weights(const Arguments& arguments) {
  if (arguments.has("--tensors") == arguments.has("--case"))
    throw CommandError("plot weights wants --tensors or --case");
  const std::string base = arguments.value("--base", "causal");
  if (base != "causal" && base != "full")
    throw CommandError("--base: '" + plain(base) + "' is neither causal nor full");

  Safetensors file;
  std::vector<Layer> layers;
  if (arguments.has("--case")) {
    layers.push_back(layer_of_case(arguments.value("--case")));
  } else {
    Result<Safetensors> read = read_safetensors_file(arguments.value("--tensors"));
    if (!read) throw CommandError(read.error());
    file = std::move(*read);
    layers = layers_of(file, arguments.value("--tensors"), base == "causal");
  }
  const std::set<std::int64_t> layer_numbers = read_numbers(arguments, "--layers"),
                               heads = read_numbers(arguments, "--heads");
  const auto subject = open_subject(read_subject(arguments.value("--impl", "naive")));
  std::vector<WeightsPanel> panels;
  std::int64_t most_heads = 1;
  for (Layer& layer : layers) {
    if (!wanted(layer_numbers, layer.number)) continue;
    const AttentionProblem& p = layer.problem;
    const std::vector<double> weights = weights_of(*subject, layer);
    std::int64_t shown = 0;
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      if (!wanted(heads, h)) continue;
      ++shown;
      const auto first = weights.begin() + h * p.q_len * p.kv_len;
      panels.push_back({fmt::format("layer {}, head {}", layer.number, h), p.q_len, p.kv_len,
                        std::vector<double>(first, first + p.q_len * p.kv_len)});
    }
    most_heads = std::max(most_heads, shown);
  }
  if (panels.empty()) throw CommandError("no layer and head of those numbers");
  if (panels.size() > kMostPanels)
    throw CommandError("more than 256 heads; choose some by --layers and --heads");
  const std::vector<std::string> tokens = read_tokens(arguments, file);
  const auto columns = static_cast<int>(
      read_unsigned(arguments, "--columns",
                    static_cast<std::uint64_t>(std::min<std::int64_t>(most_heads, 8)), 1, 64));
  write_picture(arguments, weights_svg(panels, {tokens, tokens}, columns));
  return ExitCode::conformant;
}

}  // namespace attest
