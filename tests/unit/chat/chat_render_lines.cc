// Renders conversations for tests/python/chat_diff.py: a JSON object a line in ({"template",
// "messages", "tools", "options"}), a JSON object a line out ({"text"} or {"error"}).

#include <iostream>
#include <string>

#include "tests/unit/chat/render_case.h"

namespace sluice::chat {
namespace {

std::string answer(const Result<Prompt>& prompt) {
  JsonValue out = JsonValue::object();
  if (prompt.ok()) {
    out.set("text", JsonValue::string(prompt->text()));
  } else {
    out.set("error", JsonValue::string(prompt.status().message()));
  }
  return dump_json(out);
}

Result<Prompt> render_line(const std::string& line) {
  SLUICE_ASSIGN_OR_RETURN(const JsonValue input, parse_json(line));
  const JsonValue* name = input.find("template");
  SLUICE_CHECK(name != nullptr && name->is_string());
  SLUICE_ASSIGN_OR_RETURN(const ChatTemplate* const chat_template,
                          find_template_by_name(name->text()));
  return render_case(*chat_template, input);
}

}  // namespace
}  // namespace sluice::chat

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << sluice::chat::answer(sluice::chat::render_line(line)) << '\n';
  }
  return 0;
}
