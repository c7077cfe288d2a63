// SPDX-License-Identifier: Apache-2.0
#include "harness/catalogue.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

std::string library(const std::string& name) {
  return std::string(ATTEST_BINARY_DIR) + "/lib/attest-test/" + name + ".so";
}

std::string refusal(const std::string& name) {
  const std::string path = library(name);
  const Result<Catalogue> catalogue = load_catalogue(path);
  if (catalogue) return "loaded";
  const std::string& error = catalogue.error();
  EXPECT_EQ(error.substr(0, path.size() + 2), path + ": ");
  return error.substr(std::min(error.size(), path.size() + 2));
}

TEST(Catalogue, IsReadWhole) {
  const Result<Catalogue> catalogue = load_catalogue(library("faults_plain"));
  ASSERT_TRUE(catalogue) << catalogue.error();
  ASSERT_EQ(catalogue->entries.size(), 8u);
  EXPECT_EQ(catalogue->path, library("faults_plain"));
  EXPECT_EQ(catalogue->entries[0].id, "mean");
  EXPECT_TRUE(catalogue->entries[0].honest);
  EXPECT_TRUE(catalogue->entries[0].whole);
  EXPECT_EQ(catalogue->entries[1].id, "liar");
  EXPECT_FALSE(catalogue->entries[1].whole);
  const CatalogueEntry& fault = catalogue->entries[2];
  EXPECT_EQ(fault.id, "many_keys");
  EXPECT_FALSE(fault.honest);
  EXPECT_EQ(fault.kind, "values");
  EXPECT_EQ(fault.sentence, "what it does");
  EXPECT_EQ(fault.base, "mean");
  EXPECT_EQ(fault.dtypes, std::vector{DType::f32});
  EXPECT_EQ(kernel_of(fault, DType::bf16), "many_keys.bf16");
}

TEST(Catalogue, RefusesWhatContradictsItself) {
  EXPECT_EQ(refusal("faults_twice"), "liar stands twice");
  EXPECT_EQ(refusal("faults_bad_base"), "many_keys: its base 'tired' is no honest entry");
  EXPECT_EQ(refusal("faults_bad_dtype"), "mean: 'f32,f33' is no list of dtypes");
  EXPECT_EQ(refusal("faults_bad_id"), "'a mean' is no id");
}

TEST(Catalogue, EndsWhereTheKernelsDoNot) {
  const Result<Catalogue> catalogue = load_catalogue(library("faults_kernel_ring"));
  ASSERT_TRUE(catalogue) << catalogue.error();
  EXPECT_TRUE(catalogue->entries[0].whole);
}

TEST(Catalogue, RefusesOtherFiles) {
  EXPECT_EQ(refusal("echo"), "is no library of faults: it does not export attest_fault_catalogue");
  EXPECT_EQ(refusal("missing"),
            "cannot be loaded: cannot open shared object file: No such file or directory");
}

}  // namespace
}  // namespace attest
