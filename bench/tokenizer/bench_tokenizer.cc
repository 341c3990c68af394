// bench_tokenizer: one thread of the tokenizer in `--model`, a folder with tokenizer.json.
//
// speed FILE...   MB/s of each text, median of the passes; the caches of the thread stay warm between passes
// linear          time of 10 MB over time of 1 MB of texts that tempt a tokenizer to be quadratic: 10 is linear
// append          a session of many tool results: time to render and encode the next one, against the whole session
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>

#include "base/file.h"
#include "chat/render.h"
#include "tokenizer/tokenizer.h"

namespace sluice::bench {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
constexpr size_t kMB = 1'000'000;

struct Options {
  std::string model;
  std::vector<std::string> files;
  int passes = 9;
};

/// Processor time of this thread: others on the machine cost it caches, not turns.
double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Times {
  double median_ms;
  double best_ms;
};

template <typename Work>
Times measure(int passes, const Work& work) {
  std::vector<double> times;
  for (int pass = 0; pass < passes; ++pass) {
    const double start = thread_ms();
    work();
    times.push_back(thread_ms() - start);
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times[0]};
}

template <typename Work>
double median_ms(int passes, const Work& work) {
  return measure(passes, work).median_ms;
}

void speed(const Tokenizer& tokenizer, const Options& options) {
  std::vector<int32_t> ids;
  for (const std::string& file : options.files) {
    const std::string text = read_file(file, kTextBytesMax).value();
    const Times times = measure(options.passes, [&] {
      ids.clear();
      tokenizer.encode_append(text, AddedTokens::kMatch, &ids);
    });
    const double kilobytes = static_cast<double>(text.size()) * 1e-3;
    fmt::print("{} {} bytes, {} ids, {:.1f} MB/s, best {:.1f} MB/s\n", file, text.size(),
               ids.size(), kilobytes / times.median_ms, kilobytes / times.best_ms);
  }
}

std::string repeated(std::string_view unit, size_t num_bytes) {
  std::string text;
  text.reserve(num_bytes + unit.size());
  while (text.size() < num_bytes) text.append(unit);
  return text;
}

void linear(const Tokenizer& tokenizer, const Options& options) {
  const std::pair<const char*, const char*> units[] = {
      {"combining marks, one class", "\u0301"},
      {"combining marks, classes descending", "\u0345\u0301\u0327\u0334"},
      {"spaces", " "},
      {"one letter", "a"},
      {"one accented letter, decomposed", "e\u0301"},
      {"digits", "7"},
      {"newlines", "\n"},
      {"spaces and newlines", "  \r\n\t"},
      {"punctuation", "!"},
      {"emoji and joiners", "\U0001F469\u200D\U0001F469\u200D"},
      {"Hangul, decomposed", "\u1100\u1161\u11A8"},
      {"Chinese without a break", "\u4F60\u597D\u4E16\u754C"},
      {"invalid UTF-8", "\xE2\x82"},
      {"almost an added token", "<|im_en"},
  };
  std::vector<int32_t> ids;
  const auto encode_ms = [&](std::string_view unit, size_t num_bytes) {
    const std::string text = repeated(unit, num_bytes);
    return median_ms(std::min(options.passes, 5), [&] {
      ids.clear();
      tokenizer.encode_append(text, AddedTokens::kMatch, &ids);
    });
  };
  for (const auto& [name, unit] : units) {
    const double small = encode_ms(unit, kMB);
    const double large = encode_ms(unit, 10 * kMB);
    fmt::print("{:36} 1 MB {:8.1f} ms, 10 MB {:8.1f} ms, ratio {:5.1f}\n", name, small, large,
               large / small);
  }
}

chat::ChatMessage read_call() {
  return chat::ChatMessage::assistant("", "", {{"", "read_file", JsonValue::object()}});
}

/// About 200 tokens of a tool's result.
std::string result_text(int turn) {
  std::string text;
  for (int line = 0; line < 10; ++line) {
    text += fmt::format("{}: the file src/module_{}.py holds a function of {} lines\n", line, turn,
                        turn + line);
  }
  return text;
}

void encode_prompt(const Tokenizer& tokenizer, const chat::Prompt& prompt,
                   std::vector<int32_t>* ids) {
  std::vector<TextPiece> pieces;
  for (const chat::Segment& s : prompt.segments) {
    pieces.push_back({s.text, s.trusted ? AddedTokens::kMatch : AddedTokens::kIgnore});
  }
  ids->clear();
  tokenizer.encode_pieces(pieces, ids);
}

void append(const Tokenizer& tokenizer, const Options& options) {
  const chat::ChatTemplate& known = **chat::find_template_by_name("qwen3.8");
  std::vector<int32_t> ids;
  for (const int turns : {4, 40, 400}) {
    std::vector<chat::ChatMessage> messages = {chat::ChatMessage::user("Read all files.")};
    for (int turn = 0; turn < turns; ++turn) {
      messages.push_back(read_call());
      messages.push_back(chat::ChatMessage::tool("", result_text(turn)));
    }
    const double whole_ms = median_ms(options.passes, [&] {
      encode_prompt(tokenizer, *chat::render(known, messages, {}, {}), &ids);
    });
    const size_t num_session = ids.size();
    const double next_ms = median_ms(options.passes, [&] {
      const auto next =
          chat::render_continuation(known, messages, {}, {}, {messages.size() - 1, {}});
      encode_prompt(tokenizer, next->prompt, &ids);
    });
    fmt::print("session of {:6} ids: all of it {:8.3f} ms; its last {} ids alone {:.3f} ms\n",
               num_session, whole_ms, ids.size(), next_ms);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures one thread of the tokenizer.");
  app.require_subcommand(1);
  app.add_option("--model", options.model, "folder with tokenizer.json")->required();
  app.add_option("--passes", options.passes, "of which the median counts")
      ->check(CLI::Range(1, 1000));
  auto* speed_command = app.add_subcommand("speed", "MB/s of texts");
  speed_command->add_option("files", options.files)->required();
  auto* linear_command = app.add_subcommand("linear", "10 MB against 1 MB");
  app.add_subcommand("append", "the next tool result against the session");
  CLI11_PARSE(app, argc, argv);

  std::optional<Result<Tokenizer>> tokenizer;
  const double load_ms =
      median_ms(1, [&] { tokenizer.emplace(Tokenizer::load(options.model, {})); });
  if (!tokenizer->ok()) {
    fmt::print(stderr, "{}\n", tokenizer->status().message());
    return 1;
  }
  fmt::print("loaded in {:.0f} ms\n", load_ms);
  if (*speed_command) {
    speed(**tokenizer, options);
  } else if (*linear_command) {
    linear(**tokenizer, options);
  } else {
    append(**tokenizer, options);
  }
  return 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::run(argc, argv);
}
