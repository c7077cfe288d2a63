// SPDX-License-Identifier: Apache-2.0
// The program of a failure page.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "attest/dtype.hpp"
#include "reports/pages.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kPerLine = 8;

struct TypeInC {
  const char* c;     ///< that holds one element
  const char* code;  ///< DLDataTypeCode
  int bits;
};
TypeInC in_c(const std::string& type) {
  if (type == "f64") return {"double", "kDLFloat", 64};
  if (type == "f32") return {"float", "kDLFloat", 32};
  if (type == "f16") return {"uint16_t", "kDLFloat", 16};
  if (type == "bf16") return {"uint16_t", "kDLBfloat", 16};
  if (type == "u8") return {"uint8_t", "kDLUInt", 8};
  return {"int32_t", "kDLInt", 32};
}

/// A literal that reads back as the same number.
std::string number(double value, bool single) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "-INFINITY";
  std::string text = single ? fmt::format("{:.9g}", value) : fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return single ? text + "f" : text;
}

std::string element(const std::string& type, std::uint64_t bits) {
  if (type == "f64") return number(std::bit_cast<double>(bits), false);
  if (type == "f32")
    return number(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))),
                  true);
  if (type == "f16" || type == "bf16") return fmt::format("0x{:04x}", bits);
  if (type == "u8") return fmt::format("{}", bits);
  return fmt::format("{}", static_cast<std::int32_t>(bits));
}

/// The values of a line of 16-bit numbers, which nobody reads in hexadecimal.
std::string spoken(const std::string& type, const std::uint64_t* bits, std::size_t count) {
  if (type != "f16" && type != "bf16") return "";
  std::string text = "  /*";
  for (std::size_t i = 0; i < count; ++i) {
    const auto half = static_cast<std::uint16_t>(bits[i]);
    text += fmt::format(" {:.6g}", type == "f16" ? decode_f16(half) : decode_bf16(half));
  }
  return text + " */";
}

std::string list_of(const std::vector<double>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i % kPerLine == 0 ? "\n    " : " ") + number(values[i], false) + ",";
  return values.empty() ? "0" : text + '\n';
}

std::string list_of(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ", "));
}

/// Nothing of a foreign text ends a comment or a string.
std::string in_comment(std::string_view text) {
  std::string safe = plain(text);
  for (std::size_t at = 0; (at = safe.find("*/", at)) != std::string::npos;) safe[at] = '?';
  return safe;
}
std::string in_string(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\' || c == '?')
      safe += fmt::format("\\{:03o}", byte);
    else
      safe += c;
  }
  return '"' + safe + '"';
}

std::string head(const Record& record, const CauseView& view, const FailureCall& call) {
  const Failure& failure = *view.smallest;
  std::string text = fmt::format("/* {}, cause {}: {}\n", in_comment(subject_name(record)),
                                 view.cause->id, in_comment(cause_sentence(view)));
  text += fmt::format(" *\n * {}\n", in_comment(failure.case_line));
  text += fmt::format(" * {}: {}\n", in_comment(failure.requirement), in_comment(failure.detail));
  text += fmt::format(
      " *\n * This file needs attest/plugin.h and the library, nothing else of Attest:\n *\n"
      " *   cc -Iinclude cause-{0}.c -ldl -o cause-{0} && ./cause-{0} [library]\n *\n"
      " * Exit code 0: the kernel does as it should in this one call; 1, or a signal: it does "
      "not;\n"
      " * 2: there is nothing to call. A requirement that compares several calls is shown by its\n"
      " * first: where that is right, `attest replay` shows the rest. */\n",
      view.cause->id);
  text +=
      "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <math.h>\n#include <stdio.h>\n"
      "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include "
      "<sys/resource.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\n#include "
      "\"attest/plugin.h\"\n\n";
  const bool low = failure.detail.find(" before ") != std::string::npos;
  const bool comes_and_goes =
      failure.reason == Reason::not_deterministic || failure.reason == Reason::flaky;
  text += fmt::format("#define LIBRARY {}\n#define KERNEL {}\n", in_string(call.library),
                      in_string(call.kernel));
  text += fmt::format("#define ALIGNMENT {}u /* bytes, as the kernel declares */\n",
                      std::max<std::int64_t>(call.alignment, 1));
  text += fmt::format("#define AT_START {} /* tensors stand at the {} of their pages */\n",
                      low ? 1 : 0, low ? "start" : "end");
  text += fmt::format("#define CALLS {}{}\n", comes_and_goes ? 1000 : 1,
                      comes_and_goes ? " /* it does not fail every time */" : "");
  // What is not written must show, also where NaN is right.
  text += fmt::format("#define JUNK {} /* in outputs before the call: {} */\n",
                      failure.reason == Reason::unwritten ? "0x45" : "0xff",
                      failure.reason == Reason::unwritten ? "large numbers" : "NaN");
  text += fmt::format("#define IN_CHILD {}\n",
                      failure.reason == Reason::exited ? "1 /* it ends its process */" : "0");
  text += fmt::format("#define MUST_REFUSE {}\n", call.refuse ? 1 : 0);
  text += fmt::format(
      "#define OPERATION {}\n#define NAME_OF(operation) TEXT_OF(operation)\n"
      "#define TEXT_OF(text) #text\n",
      call.is_component ? "component" : call.operation);
  text += fmt::format("#define LSE_FACTOR {}\n\n",
                      call.lse_in_log2 ? "0.69314718055994531 /* the kernel gives log2 */" : "1.0");
  return text;
}

std::string block_text(const CallBlock& block) {
  const TypeInC type = in_c(block.type);
  const std::size_t count = block.bits.size();
  if (block.output)
    return fmt::format("static {} *{}_data; /* {} elements */\n#define {}_COUNT {}u\n", type.c,
                       block.name, count, block.name, count);
  std::string text = fmt::format("static const {} {}_values[] = {{", type.c, block.name);
  for (std::size_t i = 0; i < count; i += kPerLine) {
    text += "\n    ";
    const std::size_t end = std::min(i + kPerLine, count);
    for (std::size_t j = i; j < end; ++j)
      text += element(block.type, block.bits[j]) + (j + 1 < end ? ", " : ",");
    text += spoken(block.type, &block.bits[i], end - i);
  }
  text += count == 0 ? "0" : "\n";  // there is no empty array
  return text + fmt::format("}};\nstatic {} *{}_data;\n#define {}_COUNT {}u\n", type.c, block.name,
                            block.name, count);
}

std::string tensor_text(const CallTensor& tensor) {
  return fmt::format("static int64_t {0}_shape[] = {{{1}}}, {0}_strides[] = {{{2}}};\n",
                     tensor.name, list_of(tensor.shape), list_of(tensor.strides));
}

std::string output_text(const CallOutput& output) {
  return fmt::format(
      "static const double {0}_expected[] = {{{1}}};\n"
      "static const double {0}_tolerance[] = {{{2}}}; /* negative: not judged */\n",
      output.name, list_of(output.expected), list_of(output.tolerance));
}

constexpr std::string_view kHelpers = R"(
/* A copy flush against the edge of its pages: the byte beyond it is not mapped. */
static void *place(const void *values, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t room = (bytes + ALIGNMENT + page) / page * page;
  char *base = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED || mprotect(base + page, room, PROT_READ | PROT_WRITE) != 0) {
    perror("mmap");
    exit(2);
  }
  char *data = AT_START ? base + page : base + page + (room - bytes) / ALIGNMENT * ALIGNMENT;
  if (values && bytes) memcpy(data, values, bytes);
  return data;
}

static DLTensor make(void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape,
                     int64_t *strides) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = ndim;
  tensor.dtype.code = code;
  tensor.dtype.bits = bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

)";

constexpr std::string_view kCompare = R"(
static double value_of(const DLTensor *tensor, int64_t at) {
  const char *address = (const char *)tensor->data + at * (tensor->dtype.bits / 8);
  double number;
  float single;
  uint16_t half;
  uint32_t wide;
  if (tensor->dtype.bits == 64) {
    memcpy(&number, address, sizeof number);
    return number;
  }
  if (tensor->dtype.bits == 32) {
    memcpy(&single, address, sizeof single);
    return single;
  }
  memcpy(&half, address, sizeof half);
  if (tensor->dtype.code == kDLBfloat) {
    wide = (uint32_t)half << 16;
    memcpy(&single, &wide, sizeof single);
    return single;
  }
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  number = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? fraction + 1024 : fraction;
  for (int e = exponent ? exponent : 1; e < 25; ++e) number /= 2;
  for (int e = 25; e < exponent && exponent < 31; ++e) number *= 2;
  return half & 0x8000 ? -number : number;
}

/* Prints the elements beside what they should be; the number of wrong ones. */
static int compare(const char *name, const DLTensor *tensor, double factor, const double *expected,
                   const double *tolerance) {
  int64_t count = 1, printed = 0;
  int wrong = 0;
  for (int axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t at = 0, rest = flat, index[4] = {0, 0, 0, 0};
    for (int axis = tensor->ndim; axis-- > 0; rest /= tensor->shape[axis]) {
      index[axis] = rest % tensor->shape[axis];
      at += index[axis] * tensor->strides[axis];
    }
    const double actual = factor * value_of(tensor, at), wanted = expected[flat];
    const int right = tolerance[flat] < 0 || actual == wanted || (isnan(actual) && isnan(wanted)) ||
                      fabs(actual - wanted) <= tolerance[flat];
    wrong += !right;
    if ((count > 64 && right) || printed++ >= 64) continue;
    printf("%s[", name);
    for (int axis = 0; axis < tensor->ndim; ++axis)
      printf("%s%lld", axis ? "," : "", (long long)index[axis]);
    if (tolerance[flat] < 0)
      printf("]  got %.9g, not judged\n", actual);
    else
      printf("]  expected %.9g  got %.9g  tolerance %.3g%s\n", wanted, actual, tolerance[flat],
             right ? "" : "  wrong");
  }
  return wrong;
}
)";

constexpr std::string_view kMain = R"(
static int run(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : LIBRARY;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  attest_plugin_entry_function entry;
  *(void **)&entry = dlsym(library, "attest_plugin_entry");
  const attest_plugin *found = entry ? entry(ATTEST_ABI_VERSION) : NULL;
  attest_plugin kernel;
  for (;; found = kernel.next) {
    memset(&kernel, 0, sizeof kernel);
    if (!found) {
      fprintf(stderr, "%s: no kernel %s\n", path, KERNEL);
      return 2;
    }
    memcpy(&kernel, found, found->struct_size < sizeof kernel ? found->struct_size : sizeof kernel);
    if (kernel.name && strcmp(kernel.name, KERNEL) == 0) break;
  }
  char message[4096] = "";
  attest_context context;
  memset(&context, 0, sizeof context);
  context.struct_size = sizeof context;
  context.num_threads = 1;
  context.message = message;
  context.message_capacity = sizeof message;
  void *state = NULL;
  if (!kernel.OPERATION || (kernel.open && kernel.open(0, &context, &state) != ATTEST_OK)) {
    fprintf(stderr, "%s: %s cannot be opened %s\n", path, KERNEL, message);
    return 2;
  }
  const struct rlimit memory = {(rlim_t)1 << 30, (rlim_t)1 << 30};
  setrlimit(RLIMIT_DATA, &memory); /* what it may take, and how long */
  alarm(60);
  for (int call = 0; call < CALLS; ++call)
    if (call_once(&kernel, state, &context)) return 1;
  puts("as it should be");
  return 0;
}

int main(int argc, char **argv) {
  if (!IN_CHILD) return run(argc, argv);
  const pid_t child = fork();
  if (child == 0) {
    const int code = run(argc, argv);
    fflush(stdout);
    _exit(100 + code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 2;
  if (WIFEXITED(status) && WEXITSTATUS(status) >= 100) return WEXITSTATUS(status) - 100;
  puts("the call ended its process");
  return 1;
}
)";

constexpr std::string_view kPlanAndCall = R"(
  void *plan = NULL, *workspace = NULL;
  uint64_t bytes = 0;
  attest_status status = ATTEST_OK;
  context->workspace = NULL;
  context->workspace_bytes = 0;
  if (kernel->plan) status = kernel->plan(state, NAME_OF(OPERATION), &problem, context, &plan, &bytes);
  if (status == ATTEST_OK && bytes) {
    if (posix_memalign(&workspace, 256, bytes) != 0) exit(2);
    context->workspace = workspace;
    context->workspace_bytes = bytes;
  }
  if (status == ATTEST_OK) status = kernel->OPERATION(state, plan, &problem, context);
  if (plan && kernel->drop) kernel->drop(state, plan);
  free(workspace);
)";

constexpr std::string_view kStatus = R"(  if (MUST_REFUSE) {
    printf("returned status %d; %d refuses what is not declared\n", status, ATTEST_UNSUPPORTED);
    return status != ATTEST_UNSUPPORTED;
  }
  if (status != ATTEST_OK) {
    printf("returned status %d %s\n", status, context->message);
    return 1;
  }
  int wrong = 0;
)";

std::string attention_text(const FailureCall& call) {
  std::string text =
      "  attest_attention problem;\n  memset(&problem, 0, sizeof problem);\n"
      "  problem.struct_size = sizeof problem;\n";
  for (const CallTensor& tensor : call.tensors)
    text += fmt::format("  problem.{0} = &{0};\n", tensor.name);
  for (const auto& [name, value] : call.numbers)
    text += fmt::format("  problem.{} = {};\n", name, number(value, false));
  for (const auto& [name, value] : call.integers)
    text += fmt::format("  problem.{} = {};\n", name, value);
  return text + std::string(kPlanAndCall);
}

std::string component_text(const FailureCall& call) {
  std::string inputs, outputs, scalars;
  for (const CallTensor& tensor : call.tensors) {
    const std::string prefix = call.operation + "_";  // rope_cos is its "cos"
    const bool prefixed = tensor.name.rfind(prefix, 0) == 0;
    (call.blocks[tensor.block].output ? outputs : inputs) += fmt::format(
        "{{\"{}\", &{}}}, ", tensor.name.substr(prefixed ? prefix.size() : 0), tensor.name);
  }
  for (const auto& [name, value] : call.integers)
    scalars += fmt::format("{{\"{}\", 0, 0, {}, 0}}, ", name, value);
  for (const auto& [name, value] : call.numbers)
    scalars += fmt::format("{{\"{}\", 1, 0, 0, {}}}, ", name, number(value, false));
  std::string text;
  text += fmt::format("  const attest_named_tensor inputs[] = {{{}}};\n", inputs);
  text += fmt::format("  const attest_named_tensor outputs[] = {{{}}};\n", outputs);
  text += fmt::format("  const attest_named_scalar scalars[] = {{{}}};\n", scalars);
  return text +
         fmt::format(
             "  const attest_status status =\n      kernel->component(state, \"{}\", inputs, "
             "sizeof inputs / sizeof *inputs, outputs,\n                        sizeof outputs "
             "/ sizeof *outputs, scalars, sizeof scalars / sizeof *scalars,\n"
             "                        context);\n",
             call.operation);
}

/// Lays out the tensors, calls, compares.
std::string call_text(const FailureCall& call) {
  std::string text =
      "\n/* Not 0 where the kernel does not do as it should. */\n"
      "static int call_once(const attest_plugin *kernel, void *state, attest_context *context) {\n";
  for (const CallBlock& block : call.blocks) {
    const std::string bytes = fmt::format("{0}_COUNT * sizeof *{0}_data", block.name);
    text += fmt::format("  if (!{0}_data) {0}_data = place({1}, {2});\n", block.name,
                        block.output ? "NULL" : block.name + "_values", bytes);
    if (block.output) text += fmt::format("  memset({}_data, JUNK, {});\n", block.name, bytes);
  }
  for (const CallTensor& tensor : call.tensors) {
    const CallBlock& block = call.blocks[tensor.block];
    const TypeInC type = in_c(block.type);
    text += fmt::format(
        "  DLTensor {0} = make({1}_data + {2}, {3}, {4}, {5}, {0}_shape, {0}_strides);\n",
        tensor.name, block.name, tensor.first, type.code, type.bits, tensor.shape.size());
  }
  text += call.is_component ? component_text(call) : attention_text(call);
  text += kStatus;
  for (const CallBlock& block : call.blocks)
    if (!block.output && !block.written)
      text += fmt::format(
          "  if (memcmp({0}_data, {0}_values, {0}_COUNT * sizeof *{0}_data) != 0)\n"
          "    wrong += puts(\"the input {0} was changed\") >= 0;\n",
          block.name);
  if (!call.refuse)
    for (const CallOutput& output : call.outputs)
      text += fmt::format("  wrong += compare(\"{0}\", &{0}, {1}, {0}_expected, {0}_tolerance);\n",
                          output.name, output.name == "lse" ? "LSE_FACTOR" : "1.0");
  return text + "  return wrong;\n}\n";
}

}  // namespace

bool fits_program(const FailureCall& call) {
  std::size_t elements = 0;
  for (const CallBlock& block : call.blocks) elements += block.bits.size();
  return elements <= kMostProgramElements;
}

std::string failure_program(const Record& record, const CauseView& view, const FailureCall& call) {
  std::string text = head(record, view, call);
  for (const CallBlock& block : call.blocks) text += block_text(block);
  for (const CallTensor& tensor : call.tensors) text += tensor_text(tensor);
  if (!call.refuse)
    for (const CallOutput& output : call.outputs) text += output_text(output);
  text += kHelpers;
  if (!call.refuse) text += kCompare;
  text += call_text(call);
  return text + std::string(kMain);
}

}  // namespace attest
