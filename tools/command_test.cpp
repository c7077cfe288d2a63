// SPDX-License-Identifier: Apache-2.0
// The built command, from outside: exit codes, streams, and that bad input leaves nothing behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::string kCommand = std::string(ATTEST_BINARY_DIR) + "/attest";
const std::string kBroken = std::string(ATTEST_BINARY_DIR) + "/lib/attest-broken/";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Command : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attest-command-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    // Runs in a folder of its own; what it prints and caches lies beside it.
    fs::create_directory(folder());
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "here"; }

  pid_t start(const std::vector<std::string>& arguments,
              const std::vector<std::string>& extra_environment = {}) {
    std::vector<std::string> program{kCommand};
    program.insert(program.end(), arguments.begin(), arguments.end());
    return start_program(program, extra_environment);
  }

  pid_t start_program(const std::vector<std::string>& program,
                      const std::vector<std::string>& extra_environment = {}) {
    std::vector<std::string> environment{"PATH=/usr/bin:/bin", "HOME=" + (root_ / "home").string()};
    environment.insert(environment.end(), extra_environment.begin(), extra_environment.end());
    // env -C is the one portable way to start in another folder without touching this process.
    std::vector<std::string> words{"env", "-C", folder().string()};
    words.insert(words.end(), program.begin(), program.end());
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = (root_ / "out").string(), err = (root_ / "err").string();
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& word : environment) envp.push_back(word.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_t pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, "/usr/bin/env", &actions, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Outcome finish(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = read_file(root_ / "out");
    outcome.err = read_file(root_ / "err");
    return outcome;
  }

  Outcome run(const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment = {}) {
    return finish(start(arguments, environment));
  }

  Outcome run_shell(const std::string& command) {
    return finish(start_program({"sh", "-c", command}));
  }

  /// Exit code 2, one line on standard error that names what is wrong, nothing else.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& fragment) {
    std::vector<std::string> before = files();
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << fragment << "\n" << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out, "") << fragment;
    EXPECT_EQ(outcome.err.rfind("attest: ", 0), 0u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(fragment), std::string::npos) << outcome.err;
    EXPECT_EQ(files(), before) << fragment;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder()))
      names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder() / name, std::ios::binary) << text;
  }

  /// The report without what may differ: the command line and the times.
  std::string report(const std::string& name) const {
    std::istringstream text(read_file(folder() / name));
    std::string kept;
    for (std::string line; std::getline(text, line);)
      if (line.rfind(" \"command\":", 0) != 0 && line.rfind(" \"times\":", 0) != 0)
        kept += line + "\n";
    return kept;
  }

  fs::path root_;
};

TEST_F(Command, ExplainsItself) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"check", "replay", "explain", "list", "attest check naive"})
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  for (const char* command : {"check", "replay", "explain", "list"}) {
    const Outcome one = run({command, "--help"});
    EXPECT_EQ(one.code, 0);
    EXPECT_NE(one.out.find("Examples:"), std::string::npos) << command;
  }
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("attest ", 0), 0u);
}

TEST_F(Command, RefusesCommandLinesThatMakeNoSense) {
  expect_refused({}, "which command");
  expect_refused({"chekc", "naive"}, "did you mean 'check'");
  expect_refused({"check"}, "SUBJECT");
  expect_refused({"check", "naive", "--frobnicate"}, "--frobnicate");
  expect_refused({"check", "naive", "einsum"}, "einsum");
  expect_refused({"check", "naive", "--suite", "quik"}, "quik");
  for (const char* seed : {"abc", "-1", "1e3", "18446744073709551616", ""})
    expect_refused({"check", "naive", "--seed", seed}, "--seed");
  for (const char* jobs : {"0", "-2", "99999"})
    expect_refused({"check", "naive", "--jobs", jobs}, "--jobs");
  for (const char* shard : {"0/3", "4/3", "1", "1/", "/3", "a/b", "1/3/5", "-1/3", "1/0"})
    expect_refused({"check", "naive", "--shard", shard}, "--shard");
  for (const char* budget : {"0", "-5s", "soon", "5x", "inf", "nan", ""})
    expect_refused({"check", "naive", "--time-budget", budget}, "--time-budget");
  expect_refused({"check", "naive", "--filter", "NO-SUCH-*"}, "NO-SUCH-*");
  expect_refused({"list", "everything"}, "everything");
  expect_refused({"list", "--records"}, "--records");
}

TEST_F(Command, RefusesSubjectsThatAreNone) {
  write("text.so", "this is no library");
  expect_refused({"check", "nosuchkernel"}, "nosuchkernel");
  expect_refused({"check", "./missing.so"}, "missing.so");
  expect_refused({"check", "./text.so"}, "text.so");
  expect_refused({"check", "naive#slow"}, "slow");
  expect_refused({"check", ""}, "");
  for (const char* library : {"no_entry", "wrong_abi", "null_entry", "bad_declaration",
                              "crash_on_load", "exit_on_load", "no_forward"})
    expect_refused({"check", kBroken + library + ".so", "--json", "out.json"}, library);
}

TEST_F(Command, RefusesFilesThatCannotBeReadOrWritten) {
  write("cases.txt", "# known\nattention.forward lq=2\n\nattention.forward hq=3 hkv=2 # bad\n");
  write("empty.txt", "# nothing\n");
  write("known.txt", "fail NO-SUCH-ID * wrong_value - because\n");
  write("notes.txt", "dear diary\n");
  expect_refused({"check", "naive", "--cases", "cases.txt"}, "cases.txt:4: ");
  expect_refused({"check", "naive", "--cases", "empty.txt"}, "empty.txt");
  expect_refused({"check", "naive", "--cases", "missing.txt"}, "missing.txt");
  expect_refused({"check", "naive", "--cases", "."}, "Is a directory");
  expect_refused({"check", "naive", "--cases", "cases.txt", "--suite", "smoke"}, "--suite");
  expect_refused({"check", "naive", "--expectations", "known.txt"}, "NO-SUCH-ID");
  expect_refused({"check", "naive", "--expectations", "missing.txt"}, "missing.txt");
  expect_refused({"check", "naive", "--json", "no/such/folder/r.json"}, "no/such/folder/r.json");
  expect_refused({"check", "naive", "--json", "r", "--junit", "r"}, "same file");
  expect_refused({"check", "naive", "--json", "-", "--markdown", "-"}, "standard output");
  expect_refused({"check", "naive", "--journal", "notes.txt", "--resume"}, "is no journal");
  expect_refused({"check", "naive", "--journal", "no/such/j"}, "no/such/j");
  expect_refused({"explain", "1", "--from", "notes.txt"}, "notes.txt");
  EXPECT_EQ(read_file(folder() / "notes.txt"), "dear diary\n");
}

TEST_F(Command, RefusesCaseLinesThatContradictThemselves) {
  for (const auto& [line, fragment] : std::vector<std::pair<std::string, std::string>>{
           {"", "case line"},
           {"attention.sideways lq=2", "attention.sideways"},
           {"attention.forward hq=3 hkv=2", "hkv"},
           {"attention.forward lq=-1", "lq"},
           {"attention.forward colour=red", "colour"},
           {"attention.forward lq=2 lq=3", "lq"},
           {"attention.forward d=0", "d"},
           {"attention.forward scale=nan", "scale"},
           {"attention.forward softcap=-1", "softcap"},
           {"attention.forward b=4000000000 hq=4000000000 lq=4000000000 d=4000000000", ""},
           {"attention.forward lq=300000 lk=300000 mask=random", "bytes of memory"}})
    for (const char* command : {"replay", "explain"})
      expect_refused({command, line, "naive"}, fragment);
  const Outcome named = run({"replay", "attention.forward colour=red", "naive"});
  EXPECT_EQ(named.err.find("case line: case line"), std::string::npos) << named.err;
  expect_refused({"replay", "attention.forward", "naive", "--requirement", "ORACLE-0"},
                 "did you mean 'ORACLE-O'");
  expect_refused({"explain", "attention.forward", "naive", "--row", "0,0,1"}, "--row");
  expect_refused({"explain", "attention.forward", "naive", "--row", "first"}, "--row");
  expect_refused({"explain", "3"}, "--from");
}

TEST_F(Command, WritesReportsAndAVerdict) {
  const Outcome checked = run({"check", "naive", "--suite", "smoke", "--filter", "ORACLE-*",
                               "--json", "r.json", "--junit", "r.xml", "--markdown", "r.md"});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_EQ(checked.err, "");
  EXPECT_EQ(checked.out.rfind("CONFORMANT naive", 0), 0u) << checked.out;
  EXPECT_EQ(files().size(), 3u);
  const Outcome piped =
      run({"check", "naive", "--suite", "smoke", "--filter", "ORACLE-*", "--json", "-"});
  EXPECT_EQ(piped.code, 0);
  EXPECT_EQ(piped.out.rfind("{", 0), 0u) << piped.out;
  const Outcome brief =
      run({"check", "naive", "--suite", "smoke", "--filter", "ORACLE-O", "--brief"});
  EXPECT_EQ(std::count(brief.out.begin(), brief.out.end(), '\n'), 1);
  const Outcome table = run({"list", "--records", "r.json"});
  EXPECT_EQ(table.code, 0);
  EXPECT_NE(table.out.find("naive"), std::string::npos);
}

TEST_F(Command, GivesTheSameRecordTwiceAndForAnyNumberOfJobs) {
  const std::vector<std::string> check{"check", kBroken + "broken.so#top_left", "--suite", "smoke"};
  for (const auto& [name, jobs] : {std::pair("one", "1"), {"again", "1"}, {"two", "2"}}) {
    std::vector<std::string> words = check;
    for (const std::string word : {"--jobs", jobs, "--json", name}) words.push_back(word);
    EXPECT_EQ(run(words).code, 1);
  }
  EXPECT_EQ(report("one"), report("again"));
  EXPECT_EQ(report("one"), report("two"));
  EXPECT_GT(report("one").size(), 1000u);
}

TEST_F(Command, ReplaysAFailureBitForBit) {
  const std::string subject = kBroken + "broken.so#top_left";
  const Outcome checked =
      run({"check", subject, "--suite", "smoke", "--filter", "ORACLE-O", "--json", "r.json"});
  EXPECT_EQ(checked.code, 1) << checked.out << checked.err;
  EXPECT_LE(std::count(checked.out.begin(), checked.out.end(), '\n'), 40);
  const std::size_t at = checked.out.find("attest replay '");
  ASSERT_NE(at, std::string::npos) << checked.out;
  const std::string line = checked.out.substr(at + 15, checked.out.find('\'', at + 15) - at - 15);
  const Outcome first = run({"replay", line, subject, "--requirement", "ORACLE-O"});
  EXPECT_EQ(first.code, 1) << first.out << first.err;
  EXPECT_NE(first.out.find("wrong_value"), std::string::npos) << first.out;
  EXPECT_EQ(run({"replay", line, subject, "--requirement", "ORACLE-O"}).out, first.out);
  const Outcome honest = run({"replay", line, "naive"});
  EXPECT_EQ(honest.code, 0) << honest.out << honest.err;
  const Outcome explained = run({"explain", "1", "--from", "r.json"});
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_NE(explained.out.find("wrong"), std::string::npos) << explained.out;
}

TEST_F(Command, ReplayOfWhatNobodyJudgesIsNoPass) {
  // D = 1 alone, and a promise that this kernel does not make.
  const Outcome outcome =
      run({"replay", "attention.forward lq=2", kBroken + "broken.so#refuse_all"});
  EXPECT_EQ(outcome.code, 4) << outcome.out;
}

TEST_F(Command, ExplainsACaseThatCanBeDoneByHand) {
  // Equal scores: weights 1/2 each, o = (1 + 3) / 2, lse = ln 2.
  const Outcome outcome =
      run({"explain", "attention.forward lk=2 data=list q=0 k=0,0 v=1,3", "naive"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("o[0]                   2"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("0.69314718055994"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("wrong"), std::string::npos) << outcome.out;
}

TEST_F(Command, NamesTheVerdictOfEveryMisbehaviour) {
  const Outcome refused =
      run({"check", kBroken + "broken.so#refuse_all", "--suite", "smoke", "--brief"});
  EXPECT_EQ(refused.code, 4) << refused.out;
  for (const auto& [kernel, verdict] :
       std::vector<std::pair<std::string, std::string>>{{"segfault", "crash"},
                                                        {"abort", "crash"},
                                                        {"exit", "exited"},
                                                        {"read_past_k", "out_of_bounds_read"},
                                                        {"write_before_o", "out_of_bounds_write"},
                                                        {"skip_element", "unwritten"},
                                                        {"modify_q", "input_modified"},
                                                        {"leak_nan", "nan_leak"},
                                                        {"swallow_nan", "nan_lost"},
                                                        {"ignore_feature", "wrong_accept"}}) {
    const Outcome outcome =
        run({"check", kBroken + "broken.so#" + kernel, "--suite", "smoke", "--brief"});
    EXPECT_EQ(outcome.code, 1) << kernel << outcome.out << outcome.err;
    EXPECT_NE(
        outcome.out.find(std::string("first: ") + (verdict == "crash" ? "" : "fail, ") + verdict),
        std::string::npos)
        << kernel << ": " << outcome.out;
  }
}

/// Waits until the journal has some lines: the run is under way.
void await_lines(const fs::path& journal, std::ptrdiff_t lines) {
  for (;;) {
    const std::string text = read_file(journal);
    if (std::count(text.begin(), text.end(), '\n') >= lines) return;
    ::usleep(2000);
  }
}

TEST_F(Command, KeepsWhatItHadWhenInterruptedOrKilled) {
  ASSERT_EQ(run({"check", "naive", "--suite", "smoke", "--json", "whole"}).code, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const pid_t pid = start(
        {"check", "naive", "--suite", "smoke", "--jobs", "1", "--journal", "j", "--json", "part"});
    await_lines(folder() / "j", 20);
    ::kill(pid, signal);
    const Outcome outcome = finish(pid);
    if (signal == SIGKILL) {
      EXPECT_EQ(outcome.code, 128 + SIGKILL);
    } else {
      EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
      EXPECT_EQ(outcome.out.rfind("INCOMPLETE", 0), 0u) << outcome.out;
      EXPECT_NE(outcome.out.find("--resume"), std::string::npos) << outcome.out;
      EXPECT_EQ(outcome.err,
                "attest: the run is incomplete; the same command with --resume goes on\n");
    }
    const std::string journal = read_file(folder() / "j");
    EXPECT_GE(std::count(journal.begin(), journal.end(), '\n'), 20);
    const Outcome resumed = run(
        {"check", "naive", "--suite", "smoke", "--journal", "j", "--resume", "--json", "resumed"});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_EQ(report("resumed"), report("whole")) << signal;
    fs::remove(folder() / "j");
  }
}

TEST_F(Command, AMissingHostIsTheMachinesFault) {
  fs::create_directories(folder() / "lib/attest");
  fs::copy_file(kCommand, folder() / "attest");
  fs::copy_file(std::string(ATTEST_BINARY_DIR) + "/lib/attest/naive.so",
                folder() / "lib/attest/naive.so");
  for (const char* host : {"", "not executable"}) {
    if (*host) write("lib/attest/attest-host", host);
    const Outcome outcome = run_shell("./attest check naive --suite smoke");
    EXPECT_EQ(outcome.code, 3) << host << outcome.err;
    EXPECT_NE(outcome.err.find("attest-host cannot start"), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

TEST_F(Command, SaysWhereStandardOutputIsFull) {
  for (const char* command : {"list", "check naive --suite smoke --filter ORACLE-O --json -",
                              "check naive --suite smoke --filter ORACLE-O --brief"}) {
    const Outcome outcome = run_shell(kCommand + " " + command + " > /dev/full");
    EXPECT_EQ(outcome.code, 3) << command;
    EXPECT_EQ(outcome.err, "attest: cannot write to standard output: No space left on device\n");
  }
}

TEST_F(Command, WritesNothingElsewhereWhereStandardOutputIsClosed) {
  const Outcome closed =
      run_shell(kCommand + " check naive --suite smoke --filter ORACLE-O --journal j <&- >&- 2>&-");
  EXPECT_EQ(closed.code, 0);
  const std::string journal = read_file(folder() / "j");
  EXPECT_EQ(journal.rfind("attest-journal", 0), 0u);
  EXPECT_EQ(journal.find("CONFORMANT"), std::string::npos) << journal;
}

TEST_F(Command, AFrozenSuiteKeepsItsCases) {
  // The first 2,000 cases of quick@1 on a kernel that declares all of 0.1's features. Once 0.1 is
  // released: if this fails, add quick@2 and leave the list of quick@1 as it was.
  const Outcome listed = run({"check", "naive", "--suite", "quick@1", "--list-only"});
  ASSERT_EQ(listed.code, 0) << listed.err;
  std::uint64_t hash = 0xcbf29ce484222325u;
  int lines = 0;
  for (std::size_t i = 0; i < listed.out.size() && lines < 2000; ++i) {
    hash = (hash ^ static_cast<unsigned char>(listed.out[i])) * std::uint64_t{0x100000001b3};
    lines += listed.out[i] == '\n';
  }
  EXPECT_EQ(hash, 0x1ee07fcff3205609u) << std::hex << "0x" << hash;
}

TEST_F(Command, UnderCiABudgetThatCutsIsNoVerdict) {
  const std::vector<std::string> check{"check", "naive",         "--suite",
                                       "smoke", "--time-budget", "1e-9s"};
  EXPECT_EQ(run(check).code, 4);
  EXPECT_EQ(run(check, {"CI=true"}).code, 3);
  EXPECT_EQ(run(check, {"CI=false"}).code, 4);
}

}  // namespace
