// SPDX-License-Identifier: Apache-2.0
#include "reports/message.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attest/dtype.hpp"
#include "reports/safetensors.hpp"

namespace attest {
namespace {

std::string bytes_of(const std::vector<double>& values, DType type) {
  std::string bytes(values.size() * size_of(type), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    store(bytes.data() + i * size_of(type), type, values[i]);
  return bytes;
}

WorkerRequest request() {
  WorkerRequest made;
  made.id = 7;
  made.operation = "forward";
  made.attributes = {{"dtype", std::string("f32")},
                     {"scale", 0.125},
                     {"causal", true},
                     {"window_left", std::int64_t{3}}};
  made.tensors["q"] = {{WireType::f32, {1, 2}}, bytes_of({0.1f, -INFINITY}, DType::f32)};
  made.tensors["mask"] = {{WireType::u8, {2}}, std::string("\x01\x00", 2)};
  made.outputs["o"] = {WireType::bf16, {1, 2}};
  return made;
}

constexpr const char* kRight =
    R"({"id": 7, "tensors": {"o": {"shape": [1, 2], "data": [1.00390625, "nan"]}}})";

TEST(Messages, OfJsonAreOneLineThatReadsBackExactly) {
  EXPECT_EQ(write_request(request(), MessageFormat::jsonl),
            R"({"id":7,"op":"forward","dtype":"f32","scale":0.125,"causal":true,"window_left":3,)"
            R"("outputs":{"o":{"dtype":"bf16","shape":[1,2]}},)"
            R"("tensors":{"mask":{"dtype":"u8","shape":[2],"data":[1,0]},)"
            R"("q":{"dtype":"f32","shape":[1,2],"data":[0.10000000149011612,"-inf"]}}})");
}

TEST(Messages, OfSafetensorsAreAnyReadersFiles) {
  WorkerRequest plain = request();
  plain.tensors.erase("mask");  // this reader knows floats alone
  const std::string blob = write_request(plain, MessageFormat::safetensors);
  const Result<Safetensors> file = read_safetensors(blob);
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(file->metadata.at("id"), "7");
  EXPECT_EQ(file->metadata.at("op"), "forward");
  EXPECT_EQ(file->metadata.at("causal"), "true");
  EXPECT_EQ(file->metadata.at("scale"), "0.125");
  EXPECT_EQ(file->metadata.at("outputs"), R"({"o":{"dtype":"bf16","shape":[1,2]}})");
  EXPECT_EQ(file->tensors.at("q").values, (std::vector<double>{0.1f, -INFINITY}));
}

/// Halfway between two numbers of bf16: once to even. Through f32 it would be the same; what lies a
/// little beyond, below the last bit of f32, would not.
TEST(Messages, NumbersOfJsonAreRoundedOnce) {
  WorkerRequest asked = request();
  asked.outputs["o"].shape = {3};
  const auto answer = read_answer(
      R"({"id":7,"tensors":{"o":{"shape":[3],"data":[1.00390625,1.0039062500001,"-inf"]}}})", asked,
      MessageFormat::jsonl);
  ASSERT_TRUE(answer) << answer.error();
  const std::string& bytes = answer->outputs.at("o");
  EXPECT_EQ(load(bytes.data(), DType::bf16), 1.0);
  EXPECT_EQ(load(bytes.data() + 2, DType::bf16), 1.0078125);
  EXPECT_EQ(load(bytes.data() + 4, DType::bf16), -INFINITY);
}

TEST(Messages, AnswersAreReadInBothFormats) {
  const auto json = read_answer(kRight, request(), MessageFormat::jsonl);
  ASSERT_TRUE(json) << json.error();
  EXPECT_EQ(json->outputs.at("o").size(), 4u);
  const auto refused = read_answer(R"({"id":7,"status":"unsupported","message":"no windows"})",
                                   request(), MessageFormat::jsonl);
  ASSERT_TRUE(refused) << refused.error();
  EXPECT_EQ(refused->status, "unsupported");
  EXPECT_EQ(refused->message, "no windows");

  WorkerRequest hello;
  hello.operation = "hello";
  const auto greeting =
      read_answer(R"({"id":0,"name":"mine","version":"2","declaration":"dtype=f32"})", hello,
                  MessageFormat::jsonl);
  ASSERT_TRUE(greeting) << greeting.error();
  EXPECT_EQ(greeting->declaration, "dtype=f32");

  WorkerRequest answer_as_request;
  answer_as_request.id = 7;
  answer_as_request.operation = "forward";
  answer_as_request.tensors["o"] = {{WireType::bf16, {1, 2}}, std::string("\x80\x3f\x00\x40", 4)};
  std::string blob = write_request(answer_as_request, MessageFormat::safetensors);
  const std::size_t op = blob.find(R"(,"op":"forward")");
  blob.replace(op, 15, 15, ' ');
  const auto tensors = read_answer(blob, request(), MessageFormat::safetensors);
  ASSERT_TRUE(tensors) << tensors.error();
  EXPECT_EQ(tensors->outputs.at("o"), std::string("\x80\x3f\x00\x40", 4));
}

TEST(Messages, AnswersThatMakeNoSenseAreRefusedInOneLine) {
  const auto why = [](const std::string& text) {
    const auto answer = read_answer(text, request(), MessageFormat::jsonl);
    return answer ? "accepted" : answer.error();
  };
  EXPECT_EQ(why(kRight), "accepted");
  EXPECT_EQ(why(R"({"id":8})"), "answers request '8' where 7 was sent");
  EXPECT_EQ(why(R"({"status":"ok"})"), "has no 'id'");
  EXPECT_EQ(why("[]"), "must be an object");
  EXPECT_EQ(why(R"({"id":7})"), "has no 'o'");
  EXPECT_EQ(why(R"({"id":7,"status":"fine"})"),
            "status 'fine' is none of ok, unsupported, invalid, out_of_memory, failed");
  EXPECT_EQ(why(R"({"id":7,"mood":"good"})"), "has a key 'mood', which means nothing");
  EXPECT_EQ(why(R"({"id":7,"message":3})"), "'message' has a value of the wrong kind");
  EXPECT_EQ(why(R"({"id":7,"tensors":[]})"), "'tensors' must be an object");
  EXPECT_EQ(why(R"({"id":7,"tensors":{"p":{}}})"), "gives 'p', which is not asked for");
  const auto with = [&](const std::string& tensor) {
    return why(R"({"id":7,"tensors":{"o":)" + tensor + "}}");
  };
  EXPECT_EQ(with("3"), "'o' must have shape and data");
  EXPECT_EQ(with(R"({"shape":[2,1],"data":[1,2]})"),
            "'o' has shape [2, 1] where [1, 2] is asked for");
  EXPECT_EQ(with(R"({"shape":[1,2],"data":[1]})"), "'o' has 1 numbers where its shape takes 2");
  EXPECT_EQ(with(R"({"shape":[1,2],"data":[1,null]})"),
            "o.data[1]: must be a number, \"nan\", \"inf\" or \"-inf\"");
  EXPECT_EQ(with(R"({"shape":[1,2],"data":[1,2],"dtype":"f32"})"),
            "'o' has dtype 'f32' where bf16 is asked for");
  EXPECT_EQ(with(R"({"shape":[1,2],"data":[1,2],"strides":[2,1]})"),
            "'o' has a key 'strides', which means nothing");
  EXPECT_EQ(why(R"({"id":7,"tensors":{"o":{"shape":[1,2],"data":[1,NaN]}}})").rfind("not JSON", 0),
            0u);
  const auto blob = read_answer("short", request(), MessageFormat::safetensors);
  EXPECT_FALSE(blob);
}

TEST(Messages, CommandsReadBack) {
  WorkerCommand command;
  command.arguments = {"/bin/sh", "-c", "exec 'my program' \"x\""};
  command.format = MessageFormat::safetensors;
  command.over_stdio = true;
  const auto again = read_worker_command(write_worker_command(command));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->arguments, command.arguments);
  EXPECT_EQ(again->format, command.format);
  EXPECT_TRUE(again->over_stdio);
  EXPECT_FALSE(read_worker_command(""));
  EXPECT_FALSE(read_worker_command(R"({"arguments":[],"format":"jsonl","over_stdio":false})"));
  EXPECT_FALSE(read_worker_command(R"({"arguments":["x"],"format":"xml","over_stdio":false})"));
}

}  // namespace
}  // namespace attest
