// Any bytes as what a model wrote: never a crash, the same result in one piece and in many, arguments that are JSON.

#include "base/check.h"
#include "chat/openai.h"
#include "chat/parser.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kTools = R"([
  {"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"}, "i": {"type": "integer"},
    "n": {"type": ["string", "null"]}, "o": {"type": "object"}, "a": {"type": "array"}, "b": {"type": "boolean"}}}},
  {"name": "g"}])";

std::string describe(const ParsedMessage& message) {
  std::string out = message.reasoning + '\0' + message.content;
  for (const ParsedToolCall& call : message.tool_calls) {
    const Result<JsonValue> arguments = parse_json(call.arguments_json, {.max_depth = 160});
    SLUICE_CHECK(arguments.ok() && arguments->is_object());
    out += '\0' + call.name + call.arguments_json + (call.is_complete ? "" : " (cut)");
  }
  return out;
}

/// The first byte chooses the start, the kind and the size of the chunks.
void check(std::string_view bytes) {
  static const std::vector<ToolSpec> tools = tools_from_json(parse_json(kTools).value()).value();
  if (bytes.empty()) return;
  const unsigned choice = static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(1);
  const bool in_thought = (choice & 1) != 0;
  const PieceKind kind = (choice & 2) != 0 ? PieceKind::kOrdinary : PieceKind::kUnknown;
  const size_t chunk = 1 + (choice >> 2) % 16;
  ChatParser whole(tools, in_thought);
  whole.push(bytes, kind);
  whole.finish();
  ChatParser cut(tools, in_thought);
  for (size_t i = 0; i < bytes.size(); i += chunk) cut.push(bytes.substr(i, chunk), kind);
  cut.finish();
  SLUICE_CHECK(describe(whole.message()) == describe(cut.message()));
}

}  // namespace
}  // namespace sluice::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::chat::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
