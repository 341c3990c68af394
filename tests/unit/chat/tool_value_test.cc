#include "chat/tool_value.h"

#include <gtest/gtest.h>

namespace sluice::chat {
namespace {

std::string typed(const std::string& schema, std::string_view text) {
  const JsonValue parameters =
      JsonValue::object({{"properties", JsonValue::object({{"x", parse_json(schema).value()}})}});
  return dump_json(typed_value(text, value_types(&parameters, "x")));
}

struct Row {
  const char* schema;
  const char* text;
  const char* json;
};

TEST(ChatCases, B017_TheSchemaDecides) {
  const Row rows[] = {
      {R"({"type": "string"})", "02134", R"("02134")"},
      {R"({"type": "string"})", "1e5", R"("1e5")"},
      {R"({"type": "string"})", "true", R"("true")"},
      {R"({"type": "string"})", "null", R"("null")"},
      {R"({"type": "string"})", "{\"a\": 1}", R"("{\"a\": 1}")"},
      {R"({"type": "integer"})", "140", "140"},
      {R"({"type": "integer"})", "140.0", "140"},
      {R"({"type": "integer"})", "1e3", "1000"},
      {R"({"type": "integer"})", "-0.0", "-0"},
      {R"({"type": "integer"})", " 7\n", "7"},
      {R"({"type": "integer"})", "2026-01-15", R"("2026-01-15")"},
      {R"({"type": "integer"})", "1.5", R"("1.5")"},
      {R"({"type": "integer"})", "9223372036854775808123", "9223372036854775808123"},
      {R"({"type": "integer"})", "12345678901234567890.000", "12345678901234567890"},
      {R"({"type": "integer"})", "1e1000000000", R"("1e1000000000")"},
      {R"({"type": "integer"})", "007", R"("007")"},
      {R"({"type": "integer"})", "", R"("")"},
      {R"({"type": "number"})", "1.50", "1.50"},
      {R"({"type": "number"})", "1e+16", "1e+16"},
      {R"({"type": "number"})", "3", "3"},
      {R"({"type": "number"})", "NaN", R"("NaN")"},
      {R"({"type": "number"})", "Infinity", R"("Infinity")"},
      {R"({"type": "boolean"})", "true", "true"},
      {R"({"type": "boolean"})", "False", "false"},
      {R"({"type": "boolean"})", "yes", R"("yes")"},
      {R"({"type": "null"})", "None", "null"},
      {R"({"type": ["string", "null"]})", "null", "null"},
      {R"({"type": ["string", "null"]})", "nullable", R"("nullable")"},
      {R"({"type": "string", "nullable": true})", "None", "null"},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "5", "5"},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "005", R"("005")"},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "5 ", R"("5 ")"},
      {R"({"oneOf": [{"type": "number"}, {"type": "string"}]})", "1e5", R"("1e5")"},
      {R"({"anyOf": [{"type": "array"}, {"type": "string"}]})", "[1,2]", "[1,2]"},
      {R"({"anyOf": [{"type": "array"}, {"type": "string"}]})", "[1,2", R"("[1,2")"},
      {R"({"enum": [1, 2]})", "2", "2"},
      {R"({"enum": ["1", "2"]})", "2", R"("2")"},
      {R"({"const": true})", "true", "true"},
      {R"({"items": {"type": "integer"}})", "[1]", "[1]"},
      {R"({"properties": {}})", "{}", "{}"},
      {R"({"type": "dict"})", "{}", "{}"},
      {R"({"type": "object"})", "[1]", R"("[1]")"},
      {R"({"description": "anything"})", "5", R"("5")"},
      {R"({"type": 7})", "5", R"("5")"},
  };
  for (const Row& row : rows) EXPECT_EQ(typed(row.schema, row.text), row.json) << row.schema;
}

TEST(ChatCases, B015_PythonAndJsonSpellingsGiveTheSame) {
  const std::string json = R"([{"a":true,"b":null,"c":"it's"},[1,2.5],"é\n"])";
  EXPECT_EQ(
      typed(R"({"type": "array"})", R"([{"a": true, "b": null, "c": "it's"}, [1, 2.5], "é\n"])"),
      json);
  EXPECT_EQ(typed(R"({"type": "array"})",
                  R"([{'a': True, 'b': None, 'c': "it's"}, (1, 2.5), '\xe9\n',])"),
            json);
}

TEST(ChatCases, B015_NothingIsEvaluatedAndTimeIsBounded) {
  for (const char* text :
       {"__import__('os').system('x')", "[__import__('os')]", "{'a': open('f')}", "[1 + 1]",
        "{1: 2}", "['a' 'b']", "[\"\\ud800\"]", "{'a'}", "[1,,2]", "[", "{'a': ", "['"}) {
    EXPECT_EQ(typed(R"({"type": ["array", "object"]})", text), json_quote(text));
  }
  std::string deep(10'000'000, '[');
  EXPECT_TRUE(typed_value(deep, ValueTypes(ValueTypes::kArray)).text() == deep);
  deep.append(deep.size(), ']');
  EXPECT_TRUE(typed_value(deep, ValueTypes(ValueTypes::kArray)).text() == deep);
}

TEST(ToolValue, RefsAreFollowedToAnEnd) {
  const JsonValue parameters =
      parse_json(
          R"({"properties": {"x": {"$ref": "#/$defs/Item"}, "y": {"$ref": "#/$defs/Loop"}, "z": {"$ref": "#/no"}},
      "$defs": {"Item": {"type": "object"}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}]}}})")
          .value();
  EXPECT_TRUE(value_types(&parameters, "x").only(ValueTypes::kObject));
  EXPECT_TRUE(value_types(&parameters, "y").only(ValueTypes::kInteger));
  EXPECT_TRUE(value_types(&parameters, "z").only(ValueTypes::kString));
  EXPECT_TRUE(value_types(&parameters, "unknown").only(ValueTypes::kString));
  EXPECT_TRUE(value_types(nullptr, "x").only(ValueTypes::kString));
}

}  // namespace
}  // namespace sluice::chat
