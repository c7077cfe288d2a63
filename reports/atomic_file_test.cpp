// SPDX-License-Identifier: Apache-2.0
#include "reports/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace attest {
namespace {

namespace fs = std::filesystem;

class AtomicFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "attest-atomic-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder_))
      result.push_back(entry.path().filename());
    return result;
  }

  fs::path folder_;
};

TEST_F(AtomicFile, WritesANewFileWithOrdinaryPermissions) {
  const mode_t old = umask(022);
  EXPECT_EQ(check_writable(path("r.json")), std::nullopt);
  EXPECT_TRUE(names().empty()) << "the check leaves nothing behind";
  EXPECT_EQ(write_file(path("r.json"), "abc"), std::nullopt);
  umask(old);
  EXPECT_EQ(content(path("r.json")), "abc");
  EXPECT_EQ(names(), std::vector<std::string>{"r.json"});
  struct stat status {};
  ASSERT_EQ(stat(path("r.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644u);
}

TEST_F(AtomicFile, ReplacesAndKeepsPermissions) {
  ASSERT_EQ(write_file(path("r"), "old and longer"), std::nullopt);
  ASSERT_EQ(chmod(path("r").c_str(), 0600), 0);
  EXPECT_EQ(check_writable(path("r")), std::nullopt);
  EXPECT_EQ(content(path("r")), "old and longer") << "the check changes nothing";
  EXPECT_EQ(write_file(path("r"), "new"), std::nullopt);
  EXPECT_EQ(content(path("r")), "new");
  struct stat status {};
  ASSERT_EQ(stat(path("r").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(AtomicFile, FollowsSymbolicLinks) {
  fs::create_directory(folder_ / "elsewhere");
  ASSERT_EQ(write_file(path("elsewhere/real"), "old"), std::nullopt);
  fs::create_symlink("elsewhere/real", folder_ / "link");
  EXPECT_EQ(write_file(path("link"), "new"), std::nullopt);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(path("elsewhere/real")), "new");
}

TEST_F(AtomicFile, SaysWhatIsWrongUpFrontAndLeavesNothing) {
  std::ofstream(path("file")) << "x";
  const std::string long_name(300, 'n');
  const std::vector<std::pair<std::string, std::string>> bad = {
      {path("none/r.json"), "No such file or directory"},
      {path("file/r.json"), "Not a directory"},
      {folder_.string(), "Is a directory"},
      {path("new/"), "Is a directory"},
      {path(long_name), "File name too long"},
      {"", "No such file or directory"},
      {"/proc/attest.json", "No such file or directory"}};
  for (const auto& [where, why] : bad) {
    const std::string expected =
        "cannot write " + (where.empty() ? std::string("''") : where) + ": " + why;
    EXPECT_EQ(check_writable(where), expected);
    EXPECT_EQ(write_file(where, "x"), expected);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_F(AtomicFile, WritesDevicesAndPipesStraight) {
  EXPECT_EQ(check_writable("/dev/null"), std::nullopt);
  EXPECT_EQ(write_file("/dev/null", "x"), std::nullopt);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(write_file("/dev/full", "x"), "cannot write /dev/full: No space left on device");
}

TEST_F(AtomicFile, ADiskThatFillsUpLeavesTheOldFileAndNothingElse) {
  ASSERT_EQ(write_file(path("r"), "old"), std::nullopt);
  // A file size limit makes the write itself fail half-way, as a full disk would.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto error = write_file(path("r"), std::string(100'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "cannot write " + path("r") + ": File too large");
  EXPECT_EQ(content(path("r")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"r"});
}

}  // namespace
}  // namespace attest
