// SPDX-License-Identifier: Apache-2.0
#include "reports/safetensors.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

const std::string kOne("\x00\x00\x80\x3f", 4);  // 1 in f32
const std::string kHalf("\x00\x3f", 2);         // 0.5 in bf16

TEST(Safetensors, AreRead) {
  const auto file = read_safetensors(file_of(
      R"({"__metadata__":{"tokens":"a\nb"},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
      R"("y":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"none":{"dtype":"F16","shape":[0,3],"data_offsets":[10,10]}})",
      kHalf + kOne + kOne));
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(file->metadata.at("tokens"), "a\nb");
  EXPECT_EQ(file->tensors.at("x").shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file->tensors.at("x").values, (std::vector<double>{1, 1}));
  EXPECT_EQ(file->tensors.at("y").values, std::vector<double>{0.5});
  EXPECT_TRUE(file->tensors.at("none").values.empty());
}

TEST(Safetensors, AreRefusedInOneLine) {
  const std::string good = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::pair<std::string, std::string> cases[] = {
      {"", "shorter than the 8 bytes"},
      {std::string(8, '\xff'), "a header of 18446744073709551615 bytes does not fit"},
      {file_of("{", ""), "header: not JSON"},
      {file_of("[]", ""), "header: must be an object"},
      {file_of("{" + good + "," + good + "}", kOne), "stands twice"},
      {file_of("{" + good + "}", ""), "'x': data_offsets lie outside"},
      {file_of("{" + good + "}", kOne + kOne), "bytes behind the last tensor"},
      {file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", kOne),
       "'x': 4 bytes, but the shape takes 8"},
      {file_of(R"({"x":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", kOne),
       "'x': dtype 'I8' is none of"},
      {file_of(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", kOne), "'x': shape"},
      {file_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
               kOne),
       "'x': shape"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", kOne),
       "'x': data_offsets"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1]}})", kOne), "'x': must have"},
      {file_of("{" + good + R"(,"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", kOne),
       "overlap"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "'__metadata__': must be an object of strings"}};
  for (const auto& [bytes, words] : cases) {
    const auto file = read_safetensors(bytes);
    ASSERT_FALSE(file) << words;
    EXPECT_NE(file.error().find(words), std::string::npos) << file.error();
  }
}

}  // namespace
}  // namespace attest
