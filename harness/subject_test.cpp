// SPDX-License-Identifier: Apache-2.0
// The kernel host: every way in which a kernel can go wrong becomes words, and the next call runs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "harness/arena.hpp"
#include "harness/machine_support.hpp"
#include "harness/subject_load.hpp"

namespace attest::machine_test {
namespace {

CallOptions quick(Flush flush = Flush::high) {
  CallOptions options;
  options.flush = flush;
  options.limits.cpu_seconds = 0.2;
  options.limits.memory_bytes = std::int64_t{64} << 20;
  return options;
}

Observation run(Subject& subject, Flush flush = Flush::high,
                const AttentionProblem& problem = small_problem()) {
  return observe(subject, problem, small_inputs(problem), quick(flush));
}

struct Expected {
  const char* kernel;
  Flush flush;
  Verdict verdict;
  Reason reason;
  const char* sentence;
};

class Accidents : public testing::TestWithParam<Expected> {};

TEST_P(Accidents, AreNamedAndTheNextHostGoesOn) {
  const Expected& expected = GetParam();
#if defined(ATTEST_SANITIZED)
  if (std::string(expected.kernel) == "null_after_malloc")
    GTEST_SKIP() << "the sanitizer's allocator is not ours to count in";
#endif
  auto subject = host_of("accidents", expected.kernel);
  ASSERT_NE(subject, nullptr);
  for (int round = 0; round < 2; ++round) {
    const Observation seen = run(*subject, expected.flush);
    ASSERT_TRUE(seen.call.accident) << "round " << round;
    EXPECT_EQ(name(seen.call.accident->verdict), name(expected.verdict));
    EXPECT_EQ(name(seen.call.accident->reason), name(expected.reason));
    EXPECT_EQ(seen.call.accident->sentence, expected.sentence);
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachKind, Accidents,
    testing::Values(
        Expected{"read_past_k", Flush::high, Verdict::fail, Reason::out_of_bounds_read,
                 "read, 0 bytes past the end of k"},
        Expected{"read_before_q", Flush::low, Verdict::fail, Reason::out_of_bounds_read,
                 "read, 4 bytes before q"},
        Expected{"write_past_o", Flush::high, Verdict::fail, Reason::out_of_bounds_write,
                 "write, 0 bytes past the end of o"},
        Expected{"write_before_o", Flush::low, Verdict::fail, Reason::out_of_bounds_write,
                 "write, 4 bytes before o"},
        Expected{"write_past_v", Flush::high, Verdict::fail, Reason::out_of_bounds_write,
                 "write, 4 bytes past the end of v"},
        Expected{"far_past_v", Flush::high, Verdict::fail, Reason::out_of_bounds_write,
                 "write, 20000 bytes past the end of v"},
        Expected{"segfault", Flush::high, Verdict::crash, Reason::none,
                 "signal 11 (SIGSEGV): write at address 8, a null pointer"},
        Expected{"abort", Flush::high, Verdict::crash, Reason::none,
                 "signal 6 (SIGABRT); it printed: giving up"},
        Expected{"exit", Flush::high, Verdict::fail, Reason::exited,
                 "the process ended with exit status 3"},
        Expected{"divide", Flush::high, Verdict::crash, Reason::none, "signal 8 (SIGFPE)"},
        Expected{"overflow_stack", Flush::high, Verdict::crash, Reason::none,
                 "signal 11 (SIGSEGV): stack overflow"},
        Expected{"hang", Flush::high, Verdict::hang, Reason::none,
                 "no answer after 0.2 s of CPU time"},
        Expected{"sleep", Flush::high, Verdict::hang, Reason::none, "no answer after 2 s"},
        Expected{"allocate", Flush::high, Verdict::out_of_memory, Reason::none,
                 "memory grew beyond its limit of 64.0 MiB besides the tensors"},
        Expected{"null_after_malloc", Flush::high, Verdict::out_of_memory, Reason::none,
                 "memory grew beyond its limit of 64.0 MiB besides the tensors"},
        Expected{"killed", Flush::high, Verdict::error, Reason::none,
                 "the kernel host was killed from outside (SIGKILL)"}),
    [](const testing::TestParamInfo<Expected>& tested) {
      return std::string(tested.param.kernel);
    });

TEST(Host, AKernelThatRecoversIsCalledInAFreshProcess) {
  auto subject = host_of("accidents", "count");
  EXPECT_EQ(run(*subject).o.at(0), 1);
  EXPECT_EQ(run(*subject).o.at(0), 2);
  auto dying = host_of("accidents", "exit");
  EXPECT_TRUE(run(*dying).call.accident);
  EXPECT_EQ(run(*subject).o.at(0), 3) << "another subject's accident is not ours";
}

TEST(Host, AKernelThatABusyMachineDoesNotLetRunIsNoHang) {
  auto subject = host_of("accidents", "starved");
  CallOptions options = quick();
  options.limits.cpu_seconds = 0.05;  // half a second of wall time, and it takes three times that
  const AttentionProblem problem = small_problem();
  const Observation seen = observe(*subject, problem, small_inputs(problem), options);
  EXPECT_FALSE(seen.call.accident) << seen.call.accident->sentence;
}

TEST(Host, KeepsWhatAKernelPrints) {
  testing::internal::CaptureStdout();
  auto subject = host_of("accidents", "print");
  const Observation seen = run(*subject);
  subject.reset();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_TRUE(seen.ok());
}

TEST(Host, GivesAKernelNoDescriptorsOfTheRunner) {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const int inheritable = fcntl(null, F_DUPFD, 20);
  close(null);
  auto subject = host_of("accidents", "read_stdin");
  close(inheritable);
  const Observation seen = run(*subject);
  EXPECT_FALSE(seen.call.accident);
  EXPECT_EQ(seen.call.status, 0);
}

TEST(Host, TakesAnyAmountOfOutput) {
  auto subject = host_of("accidents", "print_much");
  CallOptions options = quick();
  options.limits.cpu_seconds = 5;
  const AttentionProblem problem = small_problem();
  EXPECT_TRUE(observe(*subject, problem, small_inputs(problem), options).ok());
}

TEST(Host, DumpsNoCore) {
  rlimit before{};
  getrlimit(RLIMIT_CORE, &before);
  const rlimit all{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_CORE, &all);
  auto subject = host_of("accidents", "limits");
  setrlimit(RLIMIT_CORE, &before);
  EXPECT_TRUE(run(*subject).ok());
}

TEST(Host, JudgesATimeOutByWhatMemoryDid) {
  // Touching pages is slow: time is up long before 16 GiB are.
  auto subject = host_of("accidents", "allocate");
  CallOptions options = quick();
  options.limits.memory_bytes = std::int64_t{16} << 30;
  const AttentionProblem problem = small_problem();
  const Observation seen = observe(*subject, problem, small_inputs(problem), options);
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->verdict, Verdict::out_of_memory);
}

/// Until the process is gone; false after 20 s.
bool gone(pid_t pid, int pidfd) {
  pollfd wait{pidfd, POLLIN, 0};
  if (pidfd < 0) return kill(pid, 0) != 0;
  const bool ended = poll(&wait, 1, 20'000) == 1;
  close(pidfd);
  return ended;
}

TEST(Host, AKernelThatWritesOverTheSharedBlockHarmsItselfAlone) {
  for (const char* kernel : {"vandal_zeros", "vandal_ones", "vandal_high"}) {
    auto subject = host_of("accidents", kernel);
    for (int round = 0; round < 3; ++round) {
      const Observation seen = run(*subject);
      EXPECT_TRUE(seen.call.accident || seen.call.status == 0) << kernel;
      if (seen.call.accident) {
        EXPECT_NE(seen.call.accident->verdict, Verdict::error)
            << kernel << ": " << seen.call.accident->sentence;
      }
    }
  }
}

TEST(Host, TakesWhatAKernelForkedWithIt) {
  auto subject = host_of("accidents", "fork");
  const Observation seen = run(*subject);
  ASSERT_TRUE(seen.ok());
  const auto child = static_cast<pid_t>(seen.o.at(0));
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  subject.reset();
  EXPECT_TRUE(gone(child, pidfd));
}

TEST(Host, AKernelCannotShortenTheSharedMemory) {
  auto subject = host_of("accidents", "truncate");
  EXPECT_TRUE(run(*subject).ok());
  // It grows all the same.
  EXPECT_EQ(subject->arena().reserve_workspace(std::uint64_t{1} << 20), std::nullopt);
  EXPECT_TRUE(run(*subject).ok());
}

TEST(Host, AChildThatReturnsAnswersNoCalls) {
  auto subject = host_of("accidents", "fork_twice");
  for (int call = 1; call <= 50; ++call) {
    const Observation seen = run(*subject);
    ASSERT_TRUE(seen.ok()) << call;
    ASSERT_EQ(seen.o.at(0), call);
  }
}

TEST(Host, AChildThatCrashesIsNoFaultOfTheCall) {
  auto subject = host_of("accidents", "fork_crash");
  for (int call = 1; call <= 2; ++call) {
    const Observation seen = run(*subject);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen.o.at(0), SIGSEGV);
  }
}

// Run by the test below, in a process that is killed while its host is busy.
TEST(Host, DISABLED_OfARunnerThatIsKilled) {
  auto subject = host_of("accidents", "tell_pid");
  const Observation seen = run(*subject);
  const auto pid = static_cast<pid_t>(seen.o.at(0));
  std::thread([&subject] {
    CallOptions patient = quick();
    patient.limits.cpu_seconds = 60;
    const AttentionProblem problem = small_problem();
    observe(*subject, problem, small_inputs(problem), patient);
  }).detach();
  printf("\nhost %d\n", pid);
  fflush(stdout);
  pause();
}

TEST(Host, GoesWithARunnerThatIsKilled) {
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  std::string program = "/proc/self/exe", all = "--gtest_also_run_disabled_tests",
              filter = "--gtest_filter=Host.DISABLED_OfARunnerThatIsKilled";
  char* arguments[] = {program.data(), all.data(), filter.data(), nullptr};
  pid_t runner = -1;
  ASSERT_EQ(posix_spawn(&runner, program.c_str(), &files, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&files);
  close(out[1]);
  FILE* lines = fdopen(out[0], "r");
  char line[256];
  pid_t host = -1;
  while (host < 0 && fgets(line, sizeof line, lines)) sscanf(line, "host %d", &host);
  ASSERT_GT(host, 0);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, host, 0));
  kill(runner, SIGKILL);
  waitpid(runner, nullptr, 0);
  EXPECT_TRUE(gone(host, pidfd));
  fclose(lines);
}

#if !defined(ATTEST_SANITIZED)
TEST(Host, MeasuresTheMemoryOfACall) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kSlack = 4096;
  auto subject = host_of("accidents", "take_memory");
  const auto expect_about = [&](std::uint64_t bytes) {
    const std::optional<std::uint64_t> peak = run(*subject).call.peak_bytes;
    ASSERT_TRUE(peak);
    EXPECT_GE(*peak, bytes);
    EXPECT_LE(*peak, bytes + kSlack);
  };
  expect_about(3 * kMiB);
  expect_about(2 * kMiB);  // what it kept counts in the first call alone
  subject->restart();
  expect_about(3 * kMiB);
  auto honest = host_of("accidents", "honest");
  EXPECT_LE(run(*honest).call.peak_bytes.value_or(kMiB), kSlack);
}

TEST(Host, LosesNoByteWhereThreadsAllocateAtOnce) {
  auto subject = host_of("accidents", "take_in_threads");
  CallOptions patient = quick();
  patient.limits.cpu_seconds = 20;
  const AttentionProblem problem = small_problem();
  for (int call = 0; call < 4; ++call) {
    const Observation seen = observe(*subject, problem, small_inputs(problem), patient);
    ASSERT_TRUE(seen.ok());
    EXPECT_LE(seen.call.peak_bytes.value_or(1 << 20), 48u << 10);
  }
}

TEST(Host, CountsTheWorkspaceAsMemoryOfTheCall) {
  auto subject = host_of("load_planned");
  AttentionProblem problem = small_problem();
  problem.kv_len = 1;
  const Observation seen = run(*subject, Flush::high, problem);
  ASSERT_GT(seen.call.workspace_bytes, 0u);
  EXPECT_GE(seen.call.peak_bytes.value_or(0), seen.call.workspace_bytes);
}
#endif

TEST(InProcess, DoesNotKnowTheMemoryOfACall) {
  OpenError error;
  auto inside = open_in_process({module_path("accidents"), "take_memory", false}, error);
  ASSERT_NE(inside, nullptr) << error.message;
  const Observation seen = run(*inside);
  EXPECT_TRUE(seen.ok());
  EXPECT_FALSE(seen.call.peak_bytes);
}

TEST(Host, PassesStatusAndMessageOn) {
  auto junk = host_of("accidents", "junk_status");
  EXPECT_EQ(run(*junk).call.status, 77);
  auto refusing = host_of("accidents", "refuse");
  const Observation seen = run(*refusing);
  EXPECT_EQ(seen.call.status, 1);
  EXPECT_EQ(seen.call.message, "not today ?");
  EXPECT_FALSE(seen.ok());
  EXPECT_TRUE(seen.o.empty());
}

TEST(Host, FollowsAnArenaThatGrows) {
  auto subject = host_of("accidents", "honest");
  AttentionProblem large = small_problem();
  large.q_len = large.kv_len = 700;
  large.head_dim = large.v_head_dim = 64;
  for (const AttentionProblem& problem : {small_problem(), large, small_problem()}) {
    const AttentionInputs inputs = small_inputs(problem);
    CallOptions patient = quick();
    patient.limits.cpu_seconds = 20;  // the large one takes 0.3 s under a sanitizer
    const Observation seen = observe(*subject, problem, inputs, patient);
    ASSERT_TRUE(seen.ok());
    double sum = 0;
    for (std::int64_t j = 0; j < problem.kv_len; ++j) sum += inputs.v.at(1, 1, j, 2);
    EXPECT_NEAR(seen.o[inputs.q.index(1, 1, 0, 2)], sum / static_cast<double>(problem.kv_len),
                1e-3);
    EXPECT_TRUE(unwritten(seen.o_junk, seen.o_junk).empty());
  }
}

TEST(Host, ServesSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&right, i] {
      // Opened and used in threads that end: a host must not die with the thread that opened it.
      std::unique_ptr<Subject> subject;
      std::thread([&subject] { subject = host_of("accidents", "count"); }).join();
      for (int call = 1; call <= 50; ++call)
        if (run(*subject).o.at(0) == call) ++right;
      auto dying = host_of("accidents", i % 2 ? "exit" : "abort");
      for (int call = 0; call < 5; ++call)
        if (run(*dying).call.accident) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 55);
}

TEST(Host, GivesTheSameBitsAsTheProcessItself) {
  OpenError error;
  auto inside = open_in_process({module_path("accidents"), "honest", false}, error);
  ASSERT_NE(inside, nullptr) << error.message;
  auto hosted = host_of("accidents", "honest");
  const Observation a = run(*inside), b = run(*hosted);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.o_bits, b.o_bits);
  EXPECT_EQ(a.lse_bits, b.lse_bits);
  EXPECT_EQ(inside->kernel_name(), "honest");
  EXPECT_EQ(inside->version(), "1.2");
}

struct BrokenLibrary {
  const char* module;
  const char* message;  ///< after the path
};

class Loading : public testing::TestWithParam<BrokenLibrary> {};

TEST_P(Loading, EndsInOneLine) {
  const BrokenLibrary& broken = GetParam();
  const std::string path = module_path(broken.module);
  OpenError error;
  EXPECT_EQ(open_in_host({path, "", false}, HostOptions{"", 0.3, 3}, error), nullptr);
  EXPECT_FALSE(error.machine);
  EXPECT_EQ(error.message, path + ": " + broken.message);
}

INSTANTIATE_TEST_SUITE_P(
    EachKind, Loading,
    testing::Values(
        BrokenLibrary{"load_crash",
                      "signal 11 (SIGSEGV) while the library was loaded: write at address 8, a "
                      "null pointer"},
        BrokenLibrary{"load_exit",
                      "the process ended with exit status 4 while the library was "
                      "loaded"},
        BrokenLibrary{"load_hang",
                      "no answer after 0.3 s of CPU time while the library was loaded"},
        BrokenLibrary{"load_no_entry",
                      "is no Attest plug-in: it does not export attest_plugin_entry"},
        BrokenLibrary{"load_null_entry",
                      "attest_plugin_entry(1) returned NULL: it does not serve this version"},
        BrokenLibrary{"load_wrong_abi", "has ABI version 99, this attest has 1"},
        BrokenLibrary{"load_tiny_struct",
                      "its attest_plugin has struct_size 8, too short for a declaration"},
        BrokenLibrary{"load_open_fails", "open() returned status 4: no device"},
        BrokenLibrary{"load_open_crashes", "signal 6 (SIGABRT) in open()"},
        BrokenLibrary{"load_no_forward", "offers no forward()"},
        BrokenLibrary{"load_bad_alignment", "its alignment is 48, not a power of two up to 4096"},
        BrokenLibrary{"load_no_declaration", "only has no declaration"}),
    [](const testing::TestParamInfo<BrokenLibrary>& tested) {
      return std::string(tested.param.module);
    });

TEST(Host, SaysWhatIsWrongWithADeclaration) {
  OpenError error;
  const std::string path = module_path("load_bad_declaration");
  EXPECT_EQ(open_in_host({path, "", false}, error), nullptr);
  EXPECT_FALSE(error.machine);
  EXPECT_TRUE(error.message.starts_with(path + ": declaration of only: ")) << error.message;
  EXPECT_NE(error.message.find("f31"), std::string::npos) << error.message;
}

TEST(Host, ListsTheKernelsWhereOneIsMissing) {
  OpenError error;
  EXPECT_EQ(open_in_host({module_path("echo"), "nothing", false}, error), nullptr);
  EXPECT_FALSE(error.machine);
  EXPECT_NE(error.message.find("has no kernel called 'nothing' (it has: copy_q, copy_k, copy_v"),
            std::string::npos)
      << error.message;
}

TEST(Host, RefusesAFileThatIsNoLibrary) {
  OpenError error;
  EXPECT_EQ(open_in_host({std::string(ATTEST_BINARY_DIR) + "/CMakeCache.txt", "", false}, error),
            nullptr);
  EXPECT_FALSE(error.machine);
  EXPECT_NE(error.message.find("CMakeCache.txt: cannot be loaded: "), std::string::npos)
      << error.message;
}

TEST(Host, KilledWhileItLoadsIsTheMachinesTrouble) {
  const std::string path = module_path("load_killed");
  OpenError error;
  EXPECT_EQ(open_in_host({path, "", false}, error), nullptr);
  EXPECT_TRUE(error.machine);
  EXPECT_EQ(error.message,
            path + ": the kernel host was killed from outside (SIGKILL) while it was loaded");
}

TEST(Host, ThatCannotStartIsTheMachinesTrouble) {
  const SubjectSpec spec{module_path("accidents"), "honest", false};
  OpenError error;
  EXPECT_EQ(open_in_host(spec, HostOptions{"/no/such/attest-host"}, error), nullptr);
  EXPECT_TRUE(error.machine);
  EXPECT_EQ(error.message,
            "the kernel host /no/such/attest-host cannot start: No such file or directory");
  EXPECT_EQ(open_in_host(spec, HostOptions{"/bin/false"}, error), nullptr);
  EXPECT_TRUE(error.machine);
  EXPECT_EQ(error.message,
            "the kernel host /bin/false did not start: the process ended with exit status 1 while "
            "starting");
}

TEST(Host, LoadsAPluginBuiltWithAShorterStruct) {
  auto subject = host_of("load_short_struct");
  ASSERT_NE(subject, nullptr);
  EXPECT_EQ(subject->kernel_name(), "only");
  EXPECT_TRUE(run(*subject).ok());
  // `next` lies beyond its struct: what stands there is no kernel.
  OpenError error;
  EXPECT_EQ(open_in_host({module_path("load_short_struct"), "other", false}, error), nullptr);
  EXPECT_NE(error.message.find("has no kernel called 'other' (it has: only)"), std::string::npos)
      << error.message;
}

TEST(Workspace, IsAsLargeAsPlannedAndGuarded) {
  auto subject = host_of("load_planned");
  AttentionProblem problem = small_problem();
  problem.kv_len = 1;
  for (std::int64_t rows : {1, 10, 200, 7}) {  // 200 kB does not fit the slot at first
    problem.q_len = rows;
    for (Flush flush : {Flush::high, Flush::low}) {
      const Observation seen = run(*subject, flush, problem);
      ASSERT_TRUE(seen.ok()) << seen.call.message;
      EXPECT_EQ(seen.call.workspace_bytes, static_cast<std::uint64_t>(rows) * 1000);
      EXPECT_TRUE(seen.writes_outside.empty());
      EXPECT_TRUE(seen.inputs_modified.empty());
    }
  }
  problem.q_len = 1;
  problem.kv_len = 2;
  EXPECT_EQ(run(*subject, Flush::low, problem).writes_outside,
            std::vector<std::string>{"write, 0 bytes past the end of the workspace"});
  problem.kv_len = 3;
  EXPECT_EQ(run(*subject, Flush::high, problem).writes_outside,
            std::vector<std::string>{"write, 1 bytes before the workspace"});
  Observation seen = run(*subject, Flush::low, problem);
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->sentence, "write, 1 bytes before the workspace");
  problem.kv_len = 4;
  seen = run(*subject, Flush::high, problem);
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->sentence, "write, 600 bytes past the end of the workspace");
}

TEST(Workspace, BeyondTheLimitIsOutOfMemory) {
  auto subject = host_of("load_planned");
  AttentionProblem problem = small_problem();
  problem.batch = problem.num_heads = problem.num_kv_heads = 1;
  problem.head_dim = problem.v_head_dim = 1;
  problem.q_len = 70'000;  // asks for 70 MB, the limit is 64 MiB
  const Observation seen = run(*subject, Flush::high, problem);
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->verdict, Verdict::out_of_memory);
}

}  // namespace
}  // namespace attest::machine_test
