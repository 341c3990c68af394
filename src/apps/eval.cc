#include "apps/eval.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "apps/encode_prompt.h"
#include "base/json.h"
#include "chat/openai.h"
#include "chat/render.h"

namespace sluice {
namespace {

constexpr size_t kFileBytesMax = size_t{256} << 20;
constexpr int kFailuresShownMax = 10;
constexpr size_t kExtraTokens = 64;  // shown of a turn that goes on past its gold
constexpr std::string_view kEndOfTurn = "<|im_end|>";

struct Episode {
  std::string id;
  std::string kind;
  std::vector<chat::ChatMessage> messages;
  std::vector<chat::ToolSpec> tools;
  chat::RenderOptions options;
};

struct Counts {
  int64_t num_episodes = 0;
  int64_t num_exact_episodes = 0;
  int64_t num_turns = 0;
  int64_t num_exact_turns = 0;
};

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

Result<Episode> parse_episode(std::string_view line) {
  SLUICE_ASSIGN_OR_RETURN(const JsonValue json, parse_json(line));
  const JsonValue* messages = json.find("messages");
  if (messages == nullptr) return invalid_argument("no \"messages\"");
  Episode episode;
  episode.id = text_of(json, "id");
  episode.kind = text_of(json, "kind");
  SLUICE_ASSIGN_OR_RETURN(episode.messages, chat::messages_from_json(*messages));
  if (const JsonValue* tools = json.find("tools"); tools != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(episode.tools, chat::tools_from_json(*tools));
  }
  const JsonValue* thinking = json.find("enable_thinking");
  if (thinking != nullptr && thinking->is_bool()) {
    episode.options.enable_thinking = thinking->as_bool();
  }
  return episode;
}

Result<std::vector<Episode>> load_episodes(const EvalOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(options.file, kFileBytesMax));
  std::vector<Episode> episodes;
  std::string_view rest = text;
  for (int64_t line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    Result<Episode> episode = parse_episode(line);
    if (!episode.ok()) {
      return episode.status().with_context(fmt::format("{}:{}", options.file, line_number));
    }
    episodes.push_back(std::move(episode).value());
    if (static_cast<int64_t>(episodes.size()) == options.limit) break;
  }
  if (episodes.empty()) return invalid_argument("{}: no episodes", options.file);
  return episodes;
}

class Evaluator {
 public:
  Evaluator(const EvalOptions& options, Engine* engine) : options_(options), engine_(*engine) {}

  Status evaluate(const Episode& episode) {
    Counts& counts = by_kind_[episode.kind];
    bool exact = true;
    for (size_t i = 0; i < episode.messages.size(); ++i) {
      if (episode.messages[i].role != chat::Role::kAssistant) continue;
      SLUICE_ASSIGN_OR_RETURN(const bool turn_exact, evaluate_turn(episode, i));
      ++counts.num_turns;
      counts.num_exact_turns += turn_exact ? 1 : 0;
      exact = exact && turn_exact;
    }
    ++counts.num_episodes;
    counts.num_exact_episodes += exact ? 1 : 0;
    session_.reset();
    return Status();
  }

  /// Prints the table; the share of exact episodes.
  double report() const {
    Counts all;
    for (const auto& [kind, counts] : by_kind_) {
      print_row(kind, counts);
      all.num_episodes += counts.num_episodes;
      all.num_exact_episodes += counts.num_exact_episodes;
      all.num_turns += counts.num_turns;
      all.num_exact_turns += counts.num_exact_turns;
    }
    print_row("all", all);
    return share(all.num_exact_episodes, all.num_episodes);
  }

  int64_t num_generated_tokens() const { return num_generated_tokens_; }

 private:
  /// Greedy output on the gold prefix against the gold turn.
  Result<bool> evaluate_turn(const Episode& episode, size_t message_idx) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> prefix,
                            render_ids(episode, message_idx, true));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> whole,
                            render_ids(episode, message_idx + 1, false));
    if (whole.size() <= prefix.size() || !std::equal(prefix.begin(), prefix.end(), whole.begin())) {
      return invalid_argument("message {}: the gold turn does not begin with its prompt's ids",
                              message_idx);
    }
    const std::span<const int32_t> gold =
        until_end_of_turn(std::span(whole).subspan(prefix.size()));
    SLUICE_RETURN_IF_ERROR(move_session_to(prefix));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> drawn, draw(gold));
    const bool exact = std::ranges::equal(drawn, gold);
    if (!exact && options_.verbose) show_failure(episode, message_idx, gold, drawn);
    return exact;
  }

  Result<std::vector<int32_t>> render_ids(const Episode& episode, size_t num_messages,
                                          bool add_generation_prompt) const {
    const std::vector<chat::ChatMessage> messages(
        episode.messages.begin(), episode.messages.begin() + static_cast<ptrdiff_t>(num_messages));
    chat::RenderOptions options = episode.options;
    options.add_generation_prompt = add_generation_prompt;
    SLUICE_ASSIGN_OR_RETURN(
        const chat::Prompt prompt,
        chat::render(engine_.chat_template(), messages, episode.tools, options));
    return encode_prompt(engine_.tokenizer(), prompt);
  }

  std::span<const int32_t> until_end_of_turn(std::span<const int32_t> ids) const {
    const std::optional<int32_t> end = engine_.tokenizer().added_token_id(kEndOfTurn);
    while (!ids.empty() && ids.back() != end) ids = ids.first(ids.size() - 1);
    return ids;
  }

  /// Goes on with the session when all its ids are the prefix's first, which they are while the
  /// model writes the gold turns.
  Status move_session_to(const std::vector<int32_t>& prefix) {
    if (session_ != nullptr) {
      const std::span<const int32_t> held = session_->ids();
      if (held.size() < prefix.size() && std::equal(held.begin(), held.end(), prefix.begin())) {
        return session_->append(std::span(prefix).subspan(held.size()));
      }
      session_.reset();
    }
    SLUICE_ASSIGN_OR_RETURN(session_, engine_.create_session());
    return session_->append(prefix);
  }

  /// Stops at the first wrong token unless the rest is to be shown.
  Result<std::vector<int32_t>> draw(std::span<const int32_t> gold) {
    GenerateParams params;
    params.max_tokens = static_cast<int64_t>(gold.size() + kExtraTokens);
    std::vector<int32_t> drawn;
    SLUICE_ASSIGN_OR_RETURN(const GenerateResult result,
                            session_->generate(params, [&](const TokenEvent& event) {
                              const size_t i = drawn.size();
                              drawn.push_back(event.id);
                              return options_.verbose || (i < gold.size() && gold[i] == event.id);
                            }));
    num_generated_tokens_ += result.num_generated_tokens;
    return drawn;
  }

  void show_failure(const Episode& episode, size_t message_idx, std::span<const int32_t> gold,
                    std::span<const int32_t> drawn) {
    if (++num_failures_ > kFailuresShownMax) return;
    std::string expected, found;
    const bool decoded = engine_.tokenizer().decode(gold, {}, &expected).ok() &&
                         engine_.tokenizer().decode(drawn, {}, &found).ok();
    SLUICE_CHECK(decoded);
    std::printf("%s, message %zu\n  gold: %s\n  ours: %s\n", episode.id.c_str(), message_idx,
                json_quote(expected).c_str(), json_quote(found).c_str());
  }

  static void print_row(const std::string& kind, const Counts& counts) {
    std::printf("%-16s episodes %4lld / %4lld = %5.1f %%   turns %5lld / %5lld = %5.1f %%\n",
                kind.c_str(), static_cast<long long>(counts.num_exact_episodes),
                static_cast<long long>(counts.num_episodes),
                100.0 * share(counts.num_exact_episodes, counts.num_episodes),
                static_cast<long long>(counts.num_exact_turns),
                static_cast<long long>(counts.num_turns),
                100.0 * share(counts.num_exact_turns, counts.num_turns));
  }

  const EvalOptions& options_;
  Engine& engine_;
  std::unique_ptr<Session> session_;
  std::map<std::string, Counts> by_kind_;
  int64_t num_generated_tokens_ = 0;
  int num_failures_ = 0;
};

Result<double> run(const EvalOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Episode> episodes, load_episodes(options));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, open_engine(options.model, false));
  Evaluator evaluator(options, engine.get());
  const auto start = std::chrono::steady_clock::now();
  for (const Episode& episode : episodes) {
    SLUICE_RETURN_IF_ERROR(evaluator.evaluate(episode).with_context(episode.id));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double exact = evaluator.report();
  std::printf("%lld tokens in %.1f s\n", static_cast<long long>(evaluator.num_generated_tokens()),
              elapsed.count());
  return exact;
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const Result<double> exact = run(options);
  if (!exact.ok()) return exit_code_of(exact.status());
  if (*exact >= options.min_exact) return 0;
  return exit_code_of(
      invalid_argument("{:.1f} % of the episodes are exact; --min-exact asks for {:.1f} %",
                       100.0 * *exact, 100.0 * options.min_exact));
}

}  // namespace sluice
