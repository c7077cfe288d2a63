// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "harness/machine_support.hpp"

namespace attest::machine_test {
namespace {

TEST(SubjectSpec, FindsTheModulesBesideTheProgram) {
  EXPECT_EQ(std::filesystem::canonical(module_dir()),
            std::filesystem::canonical(std::string(ATTEST_BINARY_DIR) + "/lib/attest"));
  const std::vector<std::string> names = built_in_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::count(names.begin(), names.end(), "attest-host"), 0);
  for (const std::string& name : names) {
    const Result<SubjectSpec> spec = resolve_subject(name);
    ASSERT_TRUE(spec) << spec.error();
    EXPECT_TRUE(spec->built_in);
    EXPECT_TRUE(std::filesystem::exists(spec->path));
  }
}

TEST(SubjectSpec, SplitsOffTheKernel) {
  const Result<SubjectSpec> spec = resolve_subject(module_path("echo") + "#copy_q");
  ASSERT_TRUE(spec) << spec.error();
  EXPECT_EQ(spec->kernel, "copy_q");
  EXPECT_EQ(spec->path, std::filesystem::canonical(module_path("echo")).string());
  EXPECT_FALSE(spec->built_in);
}

TEST(SubjectSpec, SaysWhatIsMissing) {
  EXPECT_EQ(resolve_subject("").error(), "no kernel given");
  EXPECT_TRUE(resolve_subject("no_such_thing")
                  .error()
                  .starts_with("no_such_thing: no such file, and no built-in implementation"));
  EXPECT_EQ(resolve_subject("./no_such.so").error(), "./no_such.so: No such file or directory");
  EXPECT_EQ(resolve_subject("/tmp").error(), "/tmp: is a folder, not a shared library");
  EXPECT_EQ(resolve_subject("/dev/null").error(), "/dev/null: is no regular file");
  EXPECT_EQ(resolve_subject("./x.so#").error(), "./x.so#: no kernel's name after '#'");
}

}  // namespace
}  // namespace attest::machine_test
