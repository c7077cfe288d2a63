// SPDX-License-Identifier: Apache-2.0
#include "harness/accident.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "harness/host/protocol.hpp"

namespace attest {
namespace {

TEST(Printable, IsOneLineOfUtf8) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("two\nlines\t\tand\x01more\n"), "two lines and more");
  EXPECT_EQ(printable("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80"),
            "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
  EXPECT_EQ(printable("at 0x7ffe12345678, code 0x1f"), "at 0x.., code 0x1f");
  EXPECT_EQ(printable(""), "");
}

class Described : public testing::Test {
 protected:
  Described() {
    call_.tensors[static_cast<int>(Slot::q)] = tensor(0x20000, 0x20100);
    call_.tensors[static_cast<int>(Slot::k)] = tensor(0x40000, 0x40030);
    fault_.valid = 1;
    fault_.signal = SIGSEGV;
    fault_.code = 2;
    fault_.access = Access::read;
    death_.fault = &fault_;
    death_.call = &call_;
    death_.end = {false, 128 + SIGSEGV};
  }
  static PlacedTensor tensor(std::uint64_t begin, std::uint64_t end) {
    PlacedTensor placed{};
    placed.present = 1;
    placed.extent_begin = begin;
    placed.extent_end = end;
    return placed;
  }
  std::string at(std::uint64_t offset) {
    fault_.in_arena = 1;
    fault_.address = offset;
    return describe_death(death_).sentence;
  }
  PlacedCall call_{};
  FaultReport fault_{};
  Death death_;
};

TEST_F(Described, AGuardHitNamesTheNearestEdge) {
  EXPECT_EQ(at(0x40030), "read, 0 bytes past the end of k");
  EXPECT_EQ(at(0x3fff8), "read, 8 bytes before k");
  EXPECT_EQ(at(0x20180), "read, 128 bytes past the end of q");
  EXPECT_EQ(at(0x1ff00), "read, 256 bytes before q");
  fault_.access = Access::write;
  const Accident accident = describe_death(death_);
  EXPECT_EQ(accident.verdict, Verdict::fail);
  EXPECT_EQ(accident.reason, Reason::out_of_bounds_write);
  death_.workspace_begin = 0x60000;
  death_.workspace_end = 0x60010;
  EXPECT_EQ(at(0x60014), "write, 4 bytes past the end of the workspace");
  death_.where = " in plan()";
  EXPECT_EQ(at(0x40030), "write, 0 bytes past the end of k in plan()");
}

TEST_F(Described, TensorsWithoutPagesAreTheMachinesTrouble) {
  fault_.signal = SIGBUS;
  fault_.code = BUS_ADRERR;
  EXPECT_EQ(at(0x40010), "the machine has no memory left for the tensors");
  EXPECT_EQ(describe_death(death_).verdict, Verdict::error);
}

TEST_F(Described, AGuardHitIsNotBlamedOnMemory) {
  death_.memory_exhausted = true;
  EXPECT_EQ(at(0x40030), "read, 0 bytes past the end of k");
}

TEST_F(Described, OtherFaultsAreCrashesWithoutAddresses) {
  const auto sentence = [this] { return describe_death(death_).sentence; };
  fault_.address = 16;
  EXPECT_EQ(sentence(), "signal 11 (SIGSEGV): read at address 16, a null pointer");
  fault_.address = 0x7f0012345678;
  EXPECT_EQ(sentence(), "signal 11 (SIGSEGV): read at an address that is no tensor's");
  fault_.near_stack = 1;
  EXPECT_EQ(sentence(), "signal 11 (SIGSEGV): stack overflow");
  fault_.code = SI_KERNEL;
  EXPECT_EQ(
      sentence(),
      "signal 11 (SIGSEGV): a misaligned vector access, or an address that no process can have");
  fault_.code = SI_TKILL;
  EXPECT_EQ(sentence(), "signal 11 (SIGSEGV): sent by a process, not by an access");
  EXPECT_EQ(describe_death(death_).verdict, Verdict::crash);
  fault_.signal = SIGABRT;
  death_.output = "terminate called\n\twhat():  boom\n";
  EXPECT_EQ(sentence(), "signal 6 (SIGABRT); it printed: terminate called what():  boom");
}

TEST_F(Described, AFailedAllocationExplainsACrash) {
  fault_.address = 0;
  death_.memory_exhausted = true;
  death_.memory_limit = std::uint64_t{1} << 30;
  const Accident accident = describe_death(death_);
  EXPECT_EQ(accident.verdict, Verdict::out_of_memory);
  EXPECT_EQ(accident.sentence, "memory grew beyond its limit of 1.0 GiB besides the tensors");
}

TEST_F(Described, DeathsWithoutAReport) {
  death_.fault = nullptr;
  death_.end = {false, 7};
  EXPECT_EQ(describe_death(death_).reason, Reason::exited);
  EXPECT_EQ(describe_death(death_).sentence, "the process ended with exit status 7");
  death_.end = {true, SIGSEGV};
  EXPECT_EQ(describe_death(death_).sentence, "signal 11 (SIGSEGV)");
  death_.end = {true, SIGKILL};
  EXPECT_EQ(describe_death(death_).verdict, Verdict::error);
}

TEST(Hang, SaysWhichLimit) {
  EXPECT_EQ(describe_hang(0.5, false, "").sentence, "no answer after 0.5 s of CPU time");
  EXPECT_EQ(describe_hang(0.5, true, " in plan()").sentence, "no answer after 5 s in plan()");
}

}  // namespace
}  // namespace attest
