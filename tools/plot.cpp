// SPDX-License-Identifier: Apache-2.0
// attest plot: pictures of what a kernel does.
#include "tools/plot.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

struct Picture {
  std::string name;
  ExitCode (*draw)(const Arguments&);
  std::vector<std::string> options;  ///< beside --svg and --png
};

const std::vector<Picture>& pictures() {
  static const std::vector<Picture> all{
      {"weights",
       plot_weights,
       {"--tensors", "--case", "--impl", "--layers", "--heads", "--base", "--tokens", "--columns"}},
      {"memory", plot_memory, {"--times"}}};
  return all;
}

/// Draws the SVG by librsvg's command: text needs fonts.
void write_png(const std::string& svg, const std::string& png) {
  const std::string name = "rsvg-convert";
  const char* const words[] = {name.c_str(), "-o", png.c_str(), svg.c_str(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, name.c_str(), nullptr, nullptr, const_cast<char* const*>(words),
                   environ) != 0)
    throw CommandError("--png needs rsvg-convert (Debian's librsvg2-bin)");
  int status = 0;
  if (waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw CommandError("--png: rsvg-convert could not write " + plain(png), ExitCode::suite_failed);
}

ExitCode run(const Arguments& arguments) {
  const std::string what = arguments.positional("WHAT");
  std::vector<std::string> names;
  for (const Picture& picture : pictures()) {
    names.push_back(picture.name);
    if (picture.name != what) continue;
    if (arguments.value("--svg").empty()) throw CommandError("plot " + what + " wants --svg FILE");
    for (const auto& [option, value] : arguments.options)
      if (option != "--svg" && option != "--png" &&
          std::find(picture.options.begin(), picture.options.end(), option) ==
              picture.options.end())
        throw CommandError(option + " says nothing of plot " + what);
    return picture.draw(arguments);
  }
  throw CommandError("nothing to plot of the name '" + plain(what) + "'; there is " +
                     join(names, ", "));
}

ATTEST_COMMAND(
    plot,
    {
        .name = "plot",
        .summary = "pictures: attention weights, memory against length",
        .examples =
            "Examples:\n"
            "  attest plot weights --tensors qk.safetensors --layers 0,1 --svg weights.svg\n"
            "  attest plot weights --case 'attention.forward hq=2 lq=16 lk=16 d=8 base=causal' "
            "--impl ./libmine.so --svg weights.svg --png weights.png\n"
            "The weights are those of the kernel: its output where v is the identity. A file holds "
            "layers.N.q and\nlayers.N.k, each [heads, tokens, channels], or q and k; token labels "
            "stand in its metadata \"tokens\", or in\n--tokens, one a line.\n"
            "  attest plot memory --times times.json --svg memory.svg\n"
            "The memory beyond the tensors at each length, and the power of L that it grows with.",
        .positionals = {{"WHAT", "weights or memory"}},
        .options = {{"--tensors", "FILE", "a safetensors file of q and k"},
                    {"--case", "LINE", "instead: the values of a case line"},
                    {"--impl", "SUBJECT", "whose weights; default naive"},
                    {"--layers", "LIST", "default: all"},
                    {"--heads", "LIST", "default: all"},
                    {"--base", "NAME", "of a file: causal (the default) or full"},
                    {"--tokens", "FILE", "labels, one a line"},
                    {"--columns", "N", "maps side by side; default: the heads of a layer, up to 8"},
                    {"--times", "FILE", "memory: what attest bench wrote by --json"},
                    {"--svg", "FILE", "write the picture there"},
                    {"--png", "FILE", "also as PNG, by rsvg-convert"}},
        .run = run,
    });

}  // namespace

void write_picture(const Arguments& arguments, const std::string& svg) {
  const std::string path = arguments.value("--svg"), png = arguments.value("--png");
  write_output(path, svg);
  if (!png.empty()) write_png(path, png);
}

}  // namespace attest
