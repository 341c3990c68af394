#include "base/json.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string round_trip(std::string_view text) {
  const Result<JsonValue> value = parse_json(text);
  return value.ok() ? dump_json_python(*value) : "error: " + value.status().message();
}

TEST(Json, KeepsOrderAndSpelling) {
  EXPECT_EQ(round_trip(R"({"b":1,"a":[true,null,"x"]})"), R"({"b": 1, "a": [true, null, "x"]})");
  EXPECT_EQ(dump_json(*parse_json("[1e5, 1.50, -0, 123456789012345678901234567890]")),
            "[1e5,1.50,-0,123456789012345678901234567890]");
}

TEST(Json, PythonNumbers) {
  EXPECT_EQ(round_trip("[1e5, 1.50, 1e16, 1e-5, 0.0001, 1E400, -0, -0.0]"),
            "[100000.0, 1.5, 1e+16, 1e-05, 0.0001, Infinity, 0, -0.0]");
  EXPECT_EQ(round_trip("123456789012345678901234567890"), "123456789012345678901234567890");
}

TEST(Json, RepeatedKeyKeepsFirstPlaceLastValue) {
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(Json, StringsEscapeOnlyWhatTheyMust) {
  EXPECT_EQ(round_trip(R"("é\u00e9</script>\n\u0001\u007f")"), "\"éé</script>\\n\\u0001\x7f\"");
}

TEST(Json, RefusesBadDocuments) {
  for (const char* bad :
       {"", "{", "[1,]", "01", "1.", "1e", "nul", "nulls", "[1 2]", "{\"a\"}", "1 2", "\"\xff\"",
        "{\"a\":1}}", "truex", "-", "[\"a\nb\"]", "\"\\ud800\""}) {
    EXPECT_FALSE(parse_json(bad).ok()) << bad;
  }
}

TEST(Json, RefusesDeepNesting) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(parse_json(deep).ok());
  const std::string fine = std::string(100, '[') + std::string(100, ']');
  EXPECT_TRUE(parse_json(fine).ok());
}

TEST(Json, Int64) {
  EXPECT_EQ(*parse_json("9223372036854775807")->as_int64(), 9223372036854775807);
  EXPECT_FALSE(parse_json("9223372036854775808")->as_int64().ok());
  EXPECT_FALSE(parse_json("1.0")->as_int64().ok());
}

}  // namespace
}  // namespace sluice
