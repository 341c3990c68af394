// The command line. The only file that includes CLI11, which is slow to compile.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <new>

#include "apps/agent_command.h"
#include "apps/bench.h"
#include "apps/eval.h"
#include "apps/info.h"
#include "apps/run_prompt.h"
#include "apps/synth.h"
#include "apps/tokenize.h"
#include "apps/verify.h"

namespace sluice {
namespace {

constexpr int kUsageExitCode = 2;
constexpr int kThreadsMax = 1024;
constexpr int64_t kLayersMax = 1024;
constexpr int64_t kDiffIdsMax = 1024;  // every output of every op is kept
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();
constexpr double kTimeoutMinS = 0.001;
constexpr double kTimeoutMaxS = 86400.0;

/// What a command's flags are stored in until it runs.
struct Commands {
  AgentCommandOptions agent;
  AgentCommandOptions chat;
  RunPromptOptions run;
  TokenizeOptions tokenize;
  EvalOptions eval;
  InfoOptions info;
  SynthOptions synth;
  VerifyCommandOptions verify;
  DiffCommandOptions diff;
  BenchStepOptions bench_step;
  BenchPrefillOptions bench_prefill;
};

using Main = std::function<int()>;

/// CLI::Range lets NaN through, CLI::PositiveNumber prints the largest double in full, and a minus
/// wraps what is stored without a sign.
template <typename T>
CLI::Validator in_range(T min, T max) {
  const std::string range = fmt::format("{} to {}", min, max);
  return CLI::Validator(
      [=](std::string& text) {
        T value{};
        const char* end = text.data() + text.size();
        const auto [last, error] = std::from_chars(text.data(), end, value);
        const bool is_number = error == std::errc() && last == end;
        if (is_number && value >= min && value <= max) return std::string();
        return fmt::format("\"{}\" given; expected {}", text, range);
      },
      range);
}

/// "8k" becomes 8192; what is no such number goes on as it is, to be refused by the range behind it.
CLI::Validator thousands() {
  return CLI::Validator(
      [](std::string& text) {
        int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [last, error] = std::from_chars(text.data(), end, value);
        const bool is_short = value > 0 && value <= kTokensMax / 1024;
        if (error == std::errc() && is_short && last + 1 == end && *last == 'k') {
          text = fmt::format("{}", 1024 * value);
        }
        return std::string();
      },
      "");
}

CLI::Validator seed_range() {
  return in_range<uint64_t>(0, std::numeric_limits<uint64_t>::max());
}

void add_backend_flags(CLI::App* command, ModelFlags* flags) {
  command->add_option("--threads", flags->num_threads, "CPU threads (default: one per core)")
      ->check(in_range(1, kThreadsMax));
  command->add_option("--device", flags->device, "auto, cpu or cuda");
  command->add_option("--isa", flags->isa,
                      "Instruction set of the CPU kernels, or ref for the reference backend; with "
                      "--device cuda portable, the kernels that every GPU has");
}

void add_prefill_math_flag(CLI::App* command, std::string* math) {
  command
      ->add_option("--prefill-math", *math,
                   "exact, or with --device cuda fp8: prompts with activations rounded to FP8, "
                   "faster and less exact (block FP8 checkpoints)")
      ->check(CLI::IsMember({"exact", "fp8"}))
      ->capture_default_str();
}

void add_model_flags(CLI::App* command, ModelFlags* flags) {
  command->add_option("--model", flags->model_dir,
                      "Folder of a published checkpoint (default: the embedded model)");
  command
      ->add_option("--context", flags->context_max,
                   "Longest session in tokens (default: the model's limit, at most 32768)")
      ->check(in_range<int64_t>(1, kTokensMax));
  add_backend_flags(command, flags);
  add_prefill_math_flag(command, &flags->prefill_math);
}

void add_sampling_flags(CLI::App* command, SamplingFlags* flags) {
  command->add_option("--temperature", flags->temperature, "0 is greedy");
  command->add_option("--top-k", flags->top_k, "Keep the k most likely tokens; 0 is off");
  command->add_option("--top-p", flags->top_p,
                      "Keep the most likely tokens up to this probability");
  command->add_option("--min-p", flags->min_p, "Drop tokens less likely than this times the best");
  command->add_option("--presence-penalty", flags->presence_penalty);
  command->add_option("--frequency-penalty", flags->frequency_penalty);
  command->add_option("--repetition-penalty", flags->repetition_penalty);
  command->add_option("--seed", flags->seed, "A run with the same seed repeats")
      ->check(seed_range())
      ->capture_default_str();
}

void add_thinking_flags(CLI::App* command, std::optional<bool>* enable_thinking) {
  auto* think = command->add_flag_callback(
      "--think", [enable_thinking] { *enable_thinking = true; }, "Let the model think first");
  command
      ->add_flag_callback(
          "--no-think", [enable_thinking] { *enable_thinking = false; }, "Answer without a thought")
      ->excludes(think);
}

void add_conversation_flags(CLI::App* command, AgentCommandOptions* options) {
  command->add_option("--task", options->tasks, "What to ask; repeat it for more turns");
  command->add_flag(
      "--interactive", options->interactive,
      "Go on with a prompt after the tasks (the default without --task on a terminal)");
  command->add_option("--system", options->system, "System prompt");
  command->add_option("--max-tokens", options->max_tokens, "Longest turn in tokens")
      ->check(in_range<int64_t>(1, kTokensMax))
      ->capture_default_str();
  add_thinking_flags(command, &options->enable_thinking);
  add_model_flags(command, &options->model);
  add_sampling_flags(command, &options->sampling);
}

/// Without a task a terminal gets a prompt; anything else has nothing to say.
int start_conversation(AgentCommandOptions* options) {
  if (options->tasks.empty() && !options->interactive) {
    if (::isatty(STDIN_FILENO) != 1) {
      std::fprintf(stderr, "sluice: error: nothing to do: give --task, or run it on a terminal\n");
      return kUsageExitCode;
    }
    options->interactive = true;
  }
  return run_agent(*options);
}

void add_agent(CLI::App* app, AgentCommandOptions* options, Main* main) {
  CLI::App* command =
      app->add_subcommand("agent", "Tools and a task: list, read, search, calculate");
  command->add_option("--dir", options->dir, "The only folder the tools can see")
      ->capture_default_str();
  command->add_flag("--allow-write", options->allow_write, "Offer write_file too");
  command->add_option("--max-steps", options->max_steps, "Turns the model may take for one task")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  auto* tools = command->add_option("--tools", options->tools_file,
                                    "JSON array of tools, instead of the built-in ones");
  auto* runner =
      command->add_option("--tool-command", options->tool_command,
                          "Shell command that runs a call: JSON {\"name\", \"arguments\"} "
                          "on its input, the result on its output");
  tools->needs(runner);
  runner->needs(tools);
  command->add_option("--tool-timeout", options->tool_timeout_s, "Seconds one call may take")
      ->check(in_range(kTimeoutMinS, kTimeoutMaxS))
      ->capture_default_str();
  add_conversation_flags(command, options);
  command->footer(
      "Example:\n  sluice agent --dir . --task \"What does README.md say?\"\n"
      "Exit code 0 only when every task ended with an answer.");
  command->callback([=] { *main = [=] { return start_conversation(options); }; });
}

void add_chat(CLI::App* app, AgentCommandOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand("chat", "A conversation without tools");
  options->with_tools = false;
  add_conversation_flags(command, options);
  command->footer("Example:\n  sluice chat --model DIR --system \"Answer in one sentence.\"");
  command->callback([=] { *main = [=] { return start_conversation(options); }; });
}

void add_run(CLI::App* app, RunPromptOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand("run", "One prompt, one completion");
  auto* input = command->add_option_group("input");
  input->add_option("--prompt", options->prompt, "The prompt: raw text, control tokens included");
  auto* ids = input->add_option("--ids", options->ids, "The prompt as token ids; prints ids");
  input->require_option(1);
  command->add_flag("--chat", options->as_chat, "The prompt is a user's message")->excludes(ids);
  command->add_option("--max-tokens", options->max_tokens, "Longest completion in tokens")
      ->check(in_range<int64_t>(1, kTokensMax))
      ->capture_default_str();
  command->add_option("--stop", options->stop_strings, "Stop before this text; may be repeated");
  command->add_flag("--ignore-stops", options->ignore_model_stops,
                    "Go on past the model's own stop tokens");
  command
      ->add_option("--logprobs", options->num_logprobs,
                   "One JSON line a token, with this many most likely ones")
      ->check(in_range(0, kMaxLogprobs));
  add_thinking_flags(command, &options->enable_thinking);
  add_model_flags(command, &options->model);
  add_sampling_flags(command, &options->sampling);
  command->footer(
      "Examples:\n  sluice run --model DIR --prompt \"The capital of France is\" --max-tokens 8\n"
      "  sluice run --chat --prompt \"Hello\"");
  command->callback([=] { *main = [=] { return run_prompt(*options); }; });
}

void add_tokenize(CLI::App* app, TokenizeOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand("tokenize", "Text to token ids, or back");
  auto* input = command->add_option_group("input");
  input->add_option("text", options->text, "The text, or ids with --decode");
  input->add_option("--file", options->file, "Read it from this file; - is standard input");
  input->require_option(1);
  command->add_flag("--decode", options->decode, "The text is ids");
  command->add_flag("--ignore-added", options->ignore_added,
                    "Encode control tokens as the plain text they are spelled in");
  command->add_flag("--show", options->show, "One line a token, with its text");
  command->add_option("--model", options->model.model_dir, "Folder of a checkpoint");
  command->footer("Example:\n  sluice tokenize --show \"Hello, world!\"");
  command->callback([=] { *main = [=] { return run_tokenize(*options); }; });
}

void add_eval(CLI::App* app, EvalOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand("eval", "Recorded conversations, compared turn by turn");
  command->add_option("file", options->file, "Conversations, one JSON object a line")->required();
  command->add_option("--limit", options->limit, "Only the first so many")
      ->check(in_range<int64_t>(1, kTokensMax));
  command
      ->add_option("--min-exact", options->min_exact,
                   "Share of exact conversations (0 to 1) below which the exit code is 1")
      ->check(in_range(0.0, 1.0));
  command->add_flag("--verbose", options->verbose, "Show the first turns that differ");
  add_model_flags(command, &options->model);
  command->footer("Example:\n  sluice eval heldout.jsonl --limit 50 --min-exact 0.95");
  command->callback([=] { *main = [=] { return run_eval(*options); }; });
}

void add_info(CLI::App* app, InfoOptions* options, Main* main) {
  CLI::App* command =
      app->add_subcommand("info", "What a model is, what it weighs and its decode floor");
  auto* model = command->add_option("dir,--model", options->model_dir,
                                    "Folder of a checkpoint (default: the embedded model)");
  auto* size = command
                   ->add_option("--size", options->size,
                                "A published size instead, such as 27B; needs no file")
                   ->excludes(model);
  command->add_option("--format", options->format, "With --size: bf16 or fp8")
      ->capture_default_str();
  command->add_option("--bandwidth", options->bandwidth_gbs,
                      "Memory bandwidth in GB/s, for the floor of one decode step");
  command
      ->add_flag("--verify", options->verify_values, "Read every weight; refuse NaN and infinity")
      ->excludes(size);
  command->footer(
      "Examples:\n  sluice info DIR\n  sluice info --size 27B --format fp8 --bandwidth 4700");
  command->callback([=] { *main = [=] { return run_info(*options); }; });
}

void add_synth(CLI::App* app, SynthOptions* options, Main* main) {
  CLI::App* command =
      app->add_subcommand("synth", "Write a checkpoint of a published size with random weights");
  command->add_option("dir", options->dir, "Folder to write")->required();
  command->add_option("--size", options->size, "tiny, 0.8B, 2B, 4B, 9B or 27B")
      ->capture_default_str();
  command->add_option("--format", options->format, "bf16 or fp8")->capture_default_str();
  command
      ->add_option("--layers", options->num_layers,
                   "Only the first N layers, each of the size's shape (default: all)")
      ->check(in_range<int64_t>(1, kLayersMax));
  command->add_option("--seed", options->seed)->check(seed_range())->capture_default_str();
  command->add_flag("--force", options->force, "Replace a checkpoint that is there");
  command->add_option("--threads", options->num_threads, "CPU threads (default: one per core)")
      ->check(in_range(1, kThreadsMax));
  command->footer("Example:\n  sluice synth --size 0.8B --format bf16 DIR");
  command->callback([=] { *main = [=] { return run_synth(*options); }; });
}

void add_verify(CLI::App* app, VerifyCommandOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand(
      "verify", "Check a model on this machine against the oracle and against itself");
  command->add_option("dir,--model", options->model.model_dir,
                      "Folder of a checkpoint (default: the embedded model)");
  command->add_option("--golden", options->golden_dir,
                      "Folder of the oracle's recorded values for this checkpoint");
  command->add_option("--max-ids", options->num_ids_max, "Leave longer recorded prompts out")
      ->check(in_range<int64_t>(1, kTokensMax));
  command->add_option("--against", options->against,
                      "Compare top-1 with a second backend: cpu, cuda, or as --isa");
  command->add_option("--cuts", options->num_cuts, "Random cuts of a prompt to compare")
      ->check(in_range(1, 100000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the random cuts")
      ->check(seed_range())
      ->capture_default_str();
  add_backend_flags(command, &options->model);
  add_prefill_math_flag(command, &options->model.prefill_math);
  command->footer(
      "Examples:\n  sluice verify\n"
      "  sluice verify DIR --golden tests/golden/model/synth_27b_8\n"
      "Exit code 0 only when every check passed.");
  command->callback([=] { *main = [=] { return run_verify(*options); }; });
}

void add_diff(CLI::App* app, DiffCommandOptions* options, Main* main) {
  CLI::App* command = app->add_subcommand("diff", "Name the first op in which two backends depart");
  command->add_option("dir,--model", options->model.model_dir,
                      "Folder of a checkpoint (default: the embedded model)");
  command
      ->add_option("--backends", options->backends,
                   "Two of ref, scalar, avx2, avx512, avx512bf16, amx; the first is right")
      ->delimiter(',')
      ->expected(2)
      ->required();
  auto* layer =
      command->add_option("--layer", options->layer, "Look from this layer on (default: all)")
          ->check(in_range<int64_t>(0, kLayersMax));
  command
      ->add_option("--after", options->after,
                   "Look behind this output of the layer, such as conv or mixer")
      ->needs(layer);
  command->add_option("--ids", options->ids, "The prompt as token ids (default: random ones)");
  command->add_option("--num-ids", options->num_ids, "How many random ids")
      ->check(in_range<int64_t>(1, kDiffIdsMax))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the random ids")
      ->check(seed_range())
      ->capture_default_str();
  command
      ->add_option("--max-ulps", options->max_ulps,
                   "Allowed difference of one element, in bf16 units at its row's size")
      ->check(in_range(0.0, 1e9))
      ->capture_default_str();
  command
      ->add_option("--threads", options->model.num_threads, "CPU threads (default: one per core)")
      ->check(in_range(1, kThreadsMax));
  command->footer(
      "Example:\n  sluice diff --backends ref,amx --layer 3 --after q\n"
      "Exit code 0 only when no op departs.");
  command->callback([=] { *main = [=] { return run_diff(*options); }; });
}

/// Flags of every benchmark on synthetic weights.
template <typename Options>
void add_synthetic_flags(CLI::App* command, Options* options) {
  command->add_option("--synthetic", options->size, "0.8B, 2B, 4B, 9B or 27B")
      ->check(CLI::IsMember({"0.8B", "2B", "4B", "9B", "27B"}))
      ->required();
  command->add_option("--format", options->format, "bf16 or fp8")
      ->check(CLI::IsMember({"bf16", "fp8"}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of weights, state and token ids")
      ->check(seed_range())
      ->capture_default_str();
  command->add_option("--device", options->device, "cuda")->capture_default_str();
}

void add_bench_step(CLI::App* bench, BenchStepOptions* options, Main* main) {
  CLI::App* command = bench->add_subcommand(
      "step", "Decode steps on random weights that are made on the GPU; no file is read");
  add_synthetic_flags(command, options);
  command
      ->add_option("--contexts", options->contexts,
                   "Positions that the last row sees, such as 1k,8k (default: 1k,8k,32k,128k)")
      ->delimiter(',')
      ->check(in_range<int64_t>(kBenchRowsMax, kBenchContextMax))
      ->transform(thousands());
  command->add_option("--rows", options->rows, "Rows of a step (default: 1,2,4,8,16,32,64)")
      ->delimiter(',')
      ->check(in_range<int32_t>(1, static_cast<int32_t>(kBenchRowsMax)));
  command->add_option("--steps", options->num_steps, "Steps timed for each number")
      ->check(in_range(20, 10000))
      ->capture_default_str();
  command->footer(
      "Example:\n  sluice bench step --synthetic 27B --format fp8 --contexts 1k,32k --rows 1,8\n"
      "Exit code 0 only when the greedy tokens are the same before and after.");
  command->callback([=] { *main = [=] { return run_bench_step(*options); }; });
}

void add_bench_prefill(CLI::App* bench, BenchPrefillOptions* options, Main* main) {
  CLI::App* command = bench->add_subcommand(
      "prefill", "Prompts to their first token, on random weights that are made on the GPU");
  add_synthetic_flags(command, options);
  const auto add_lengths = [&](const char* name, std::vector<int64_t>* lengths, const char* text) {
    command->add_option(name, *lengths, text)
        ->delimiter(',')
        ->check(in_range<int64_t>(1, kBenchContextMax))
        ->transform(thousands());
  };
  add_lengths("--cold", &options->cold,
              "Tokens of prompts of new sessions (default: 512,4k,8k,32k,128k)");
  add_lengths("--append", &options->append,
              "Tokens of prompts behind what a session holds (default: 16,64,200,512,2k)");
  add_lengths("--past", &options->past, "Tokens that it holds (default: 8k,32k)");
  add_prefill_math_flag(command, &options->prefill_math);
  command->add_option("--runs", options->num_runs, "Runs of each prompt; long ones get fewer")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  command->add_option("--cuts", options->num_cuts, "Random cuts of a prompt to compare, bit by bit")
      ->check(in_range(0, 10000))
      ->capture_default_str();
  command->add_flag(
      "--all-parts", options->all_parts,
      "Take the last step of every prompt apart (default: cold 512, 4k, 32k, 200 on 8k)");
  command->footer(
      "Example:\n  sluice bench prefill --synthetic 27B --cold 512,4k --append 200 --past 8k\n"
      "Exit code 0 only when the greedy tokens are the same before and after, and in every cut.");
  command->callback([=] { *main = [=] { return run_bench_prefill(*options); }; });
}

void add_bench(CLI::App* app, Commands* commands, Main* main) {
  CLI::App* command =
      app->add_subcommand("bench", "Time the model's steps against the GPU's memory and products");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  sluice bench step --synthetic 27B --format fp8\n"
      "  sluice bench prefill --synthetic 27B --format fp8");
  add_bench_step(command, &commands->bench_step, main);
  add_bench_prefill(command, &commands->bench_prefill, main);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"sluice: an inference engine for the Qwen3.5, 3.6 and 3.8 dense hybrids", "sluice"};
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(0, 1);  // "fly" is then named as unexpected, not as a missing command
  app.footer(
      "Examples:\n  sluice agent --dir . --task \"List the files here.\"\n"
      "  sluice chat --model DIR\n  sluice COMMAND --help");
  Commands commands;
  Main main;
  add_agent(&app, &commands.agent, &main);
  add_chat(&app, &commands.chat, &main);
  add_run(&app, &commands.run, &main);
  add_tokenize(&app, &commands.tokenize, &main);
  add_eval(&app, &commands.eval, &main);
  add_info(&app, &commands.info, &main);
  add_synth(&app, &commands.synth, &main);
  add_verify(&app, &commands.verify, &main);
  add_diff(&app, &commands.diff, &main);
  add_bench(&app, &commands, &main);
  try {
    app.parse(argc, argv);
    if (!main) throw CLI::RequiredError("A command");
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    print_error(invalid_argument("{}", error.what()));
    std::fprintf(stderr, "Try sluice --help, or sluice COMMAND --help.\n");
    return kUsageExitCode;
  }
  try {
    return main();
  } catch (const std::bad_alloc&) {
    print_error(resource_exhausted("the system refused memory"));
    return 1;
  }
}

/// A full disk or a closed output is a failure too: what was asked for did not arrive.
int finish_output(int exit_code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return exit_code;
  print_error(io_error("the output could not be written whole: is the disk full?"));
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::finish_output(sluice::parse_and_run(argc, argv));
}
