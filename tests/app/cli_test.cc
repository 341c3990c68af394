// The real binary, as a user meets it.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/app/temp_tree.h"

namespace sluice {
namespace {

using testing::TempTree;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// `sluice ARGUMENTS` by the shell, with nothing on standard input.
Outcome sluice(const std::string& arguments) {
  const TempTree tree;
  const std::string err_file = tree.path("err").string();
  const std::string command =
      std::string(SLUICE_BINARY) + " " + arguments + " 2>" + err_file + " </dev/null";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  Outcome outcome;
  std::array<char, 4096> chunk;
  while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.out.append(chunk.data(), n);
  }
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = tree.content("err");
  return outcome;
}

/// The embedded checkpoint by links, so that one file can be spoilt.
class CheckpointCopy {
 public:
  CheckpointCopy() {
    const std::filesystem::path model =
        std::filesystem::path(SLUICE_SOURCE_DIR) / "models/tiny-agent";
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
      tree_.link(entry.path().filename().string(), entry.path());
    }
  }
  void replace(const std::string& name, const std::string& content) const {
    std::filesystem::remove(tree_.path(name));
    tree_.file(name, content);
  }
  void remove(const std::string& name) const { std::filesystem::remove(tree_.path(name)); }
  std::string content(const std::string& name) const { return tree_.content(name); }
  std::string dir() const { return tree_.root().string(); }

 private:
  TempTree tree_;
};

bool is_one_error_line(const std::string& err) {
  return err.starts_with("sluice: error: ") && err.find('\n') == err.size() - 1;
}

TEST(Cli, HelpIsThereForEveryCommand) {
  const Outcome help = sluice("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"agent", "chat", "run", "tokenize", "eval", "info", "synth", "verify",
                              "diff", "bench", "bench step", "bench prefill"}) {
    const std::string_view name = command;
    EXPECT_NE(help.out.find(name.substr(0, name.find(' '))), std::string::npos);
    const Outcome own = sluice(std::string(command) + " --help");
    EXPECT_EQ(own.exit_code, 0) << command;
    EXPECT_NE(own.out.find("Example"), std::string::npos) << command;
  }
  EXPECT_TRUE(sluice("--version").out.starts_with("sluice "));
}

TEST(Cli, WrongUseIsExitCodeTwo) {
  for (const char* arguments : {"",
                                "fly",
                                "agent --fly",
                                "agent",
                                "chat",
                                "agent --task x --threads 0",
                                "agent --task x --threads many",
                                "agent --task x --max-steps 0",
                                "agent --task x --tools t.json",
                                "agent --task x --tool-command cat",
                                "agent --task x --think --no-think",
                                "run",
                                "run --prompt x --ids 1",
                                "run --prompt x --logprobs 99",
                                "tokenize",
                                "eval",
                                "eval f --min-exact 2",
                                "diff",
                                "diff --backends ref",
                                "diff --backends ref,amx,avx2",
                                "diff --backends ref,scalar --after q",
                                "verify --cuts 0",
                                "bench",
                                "bench step",
                                "bench step --synthetic 28B",
                                "bench step --synthetic 27B --format fp4",
                                "bench step --synthetic 27B --contexts 1x",
                                "bench step --synthetic 27B --contexts 8",
                                "bench step --synthetic 27B --contexts 300k",
                                "bench step --synthetic 27B --rows 0,1",
                                "bench step --synthetic 27B --rows 65",
                                "bench step --synthetic 27B --steps 3",
                                "bench prefill",
                                "bench prefill --synthetic 27B --cold 0",
                                "bench prefill --synthetic 27B --append 2x",
                                "bench prefill --synthetic 27B --past 300k",
                                "bench prefill --synthetic 27B --runs 0"}) {
    const Outcome outcome = sluice(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(outcome.err.starts_with("sluice: error: ")) << arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
}

TEST(Cli, WrongUseIsToldInAShortLine) {
  const struct {
    const char* arguments;
    const char* named;
  } cases[] = {
      {"fly", "fly"},
      {"", "command"},
      {"agent --task x --max-tokens 0", "1 to 2147483647"},
      {"agent --task x --max-tokens many", "many"},
      {"run --prompt x --context 0", "1 to 2147483647"},
      {"run --prompt x --seed -3", "-3"},
      {"synth d --seed -3", "-3"},
      {"agent --task x --tools t --tool-command c --tool-timeout nan", "nan"},
      {"agent --task x --tools t --tool-command c --tool-timeout 1e300", "86400"},
      {"eval f --min-exact nan", "nan"},
      {"run --ids 1 --chat", "--ids"},
      {"info --size 4B --verify", "--size"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = sluice(c.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << c.arguments;
    const std::string line = outcome.err.substr(0, outcome.err.find('\n'));
    EXPECT_LT(line.size(), 120U) << line;
    EXPECT_NE(line.find(c.named), std::string::npos) << c.arguments << ": " << line;
  }
}

TEST(Cli, OutputThatDoesNotArriveIsAFailure) {
  for (const char* arguments :
       {"--help", "info", "tokenize hi", "run --prompt hi --max-tokens 2"}) {
    for (const char* output : {" >/dev/full", " >&-"}) {
      const Outcome outcome = sluice(std::string(arguments) + output);
      EXPECT_EQ(outcome.exit_code, 1) << arguments << output;
      EXPECT_NE(outcome.err.find("sluice: error: the output"), std::string::npos) << outcome.err;
    }
  }
}

TEST(Cli, CtrlCIsExitCode130) {
  const TempTree tree;
  const std::string out = tree.path("out").string();
  const Outcome outcome = sluice("run --prompt hi --ignore-stops --max-tokens 30000 >" + out +
                                 " 2>&1 & P=$!; until [ -s " + out +
                                 " ] || ! kill -0 $P; do sleep 0.05; done; "
                                 "kill -INT $P; wait $P");
  EXPECT_EQ(outcome.exit_code, 130) << tree.content("out");
}

TEST(Cli, FaultsAreOneLineThatNamesThem) {
  const struct {
    const char* arguments;
    const char* named;
  } cases[] = {
      {"agent --task x --model /no/such/model", "/no/such/model"},
      {"agent --task x --dir /no/such/dir", "/no/such/dir"},
      {"agent --task x --tools /no/such.json --tool-command cat", "/no/such.json"},
      {"agent --task x --temperature -1", "temperature"},
      {"agent --task x --top-p 2", "top_p"},
      {"agent --task x --context 99999999", "99999999"},
      {"agent --task x --context 128", "128"},
      {"agent --task x --device abacus", "abacus"},
      {"agent --task x --isa abacus", "abacus"},
      {"run --ids 1,x", "\"x\""},
      {"run --ids 1,99999999", "99999999"},
      {"tokenize --file /no/such.txt", "/no/such.txt"},
      {"tokenize --decode 99999999", "99999999"},
      {"eval /no/such.jsonl", "/no/such.jsonl"},
      {"info --size 28B", "28B"},
      {"bench step --synthetic 27B --device cpu", "cpu"},
      {"bench prefill --synthetic 27B --device cpu", "cpu"},
      {"bench prefill --synthetic 27B --append 32k --past 256k", "294912"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = sluice(c.arguments);
    EXPECT_EQ(outcome.exit_code, 1) << c.arguments;
    EXPECT_TRUE(is_one_error_line(outcome.err)) << c.arguments << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(c.named), std::string::npos) << c.arguments << ": " << outcome.err;
  }
}

TEST(Cli, SpoiltCheckpointsAreNamed) {
  const std::string shard = "layers-3.safetensors";
  const CheckpointCopy whole;
  const std::string bytes = whole.content(shard);
  const struct {
    std::string name;
    std::string content;
  } cases[] = {
      {shard, bytes.substr(0, bytes.size() / 2)},
      {shard, bytes.substr(0, 5)},
      {shard, ""},
      {shard, std::string(bytes.size(), '\xff')},
      {"config.json", "{"},
      {"config.json", whole.content("config.json").substr(0, 100)},
      {"tokenizer.json", "{}"},
      {"model.safetensors.index.json", "[]"},
      {"generation_config.json", "nonsense"},
      {"chat_template.jinja", "{{ unknown }}"},
  };
  for (const auto& c : cases) {
    const CheckpointCopy copy;
    copy.replace(c.name, c.content);
    const Outcome outcome = sluice("agent --task x --model " + copy.dir());
    EXPECT_EQ(outcome.exit_code, 1) << c.name;
    EXPECT_TRUE(is_one_error_line(outcome.err)) << outcome.err;
    EXPECT_NE(outcome.err.find(c.name.substr(0, c.name.find('.'))), std::string::npos)
        << c.name << ": " << outcome.err;
  }
  whole.remove(shard);
  EXPECT_NE(sluice("agent --task x --model " + whole.dir()).err.find(shard), std::string::npos);
}

TEST(Cli, TokenizeGoesThereAndBack) {
  const Outcome ids = sluice("tokenize 'List src/main.cc.'");
  EXPECT_EQ(ids.exit_code, 0);
  EXPECT_EQ(sluice("tokenize --decode '" + ids.out + "'").out, "List src/main.cc.\n");
  const std::string control = sluice("tokenize '<|im_end|>'").out;
  EXPECT_EQ(control.find(' '), std::string::npos) << "one token";
  EXPECT_NE(sluice("tokenize --ignore-added '<|im_end|>'").out.find(' '), std::string::npos);
}

TEST(Cli, InfoTellsWhetherTheModelCanTalk) {
  const std::string whole = sluice("info").out;
  EXPECT_NE(whole.find("tokenizer   2420 ids\n"), std::string::npos) << whole;
  EXPECT_NE(whole.find("template    tiny-agent\n"), std::string::npos) << whole;
  CheckpointCopy copy;
  copy.remove("tokenizer.json");
  copy.replace("chat_template.jinja", "{{ messages }}");
  const Outcome mute = sluice("info " + copy.dir());
  EXPECT_EQ(mute.exit_code, 0);
  EXPECT_NE(mute.out.find("tokenizer   none: "), std::string::npos) << mute.out;
  EXPECT_NE(mute.out.find("template    none: "), std::string::npos) << mute.out;
}

TEST(Cli, VerifyWithoutAGoldenChecksWhatNeedsNoOracle) {
  const TempTree tree;
  const std::string dir = tree.path("m").string();
  ASSERT_EQ(sluice("synth --size tiny --format fp8 " + dir).exit_code, 0);
  const Outcome outcome = sluice("verify --cuts 2 " + dir);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  for (const char* part : {"golden   none", "PASS  row = rows", "\nPASS: ", " 0 failed\n"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << outcome.out;
  }
}

TEST(Cli, VerifyRefusesTheGoldenOfAnotherCheckpoint) {
  const std::string golden = std::string(SLUICE_SOURCE_DIR) + "/tests/golden/model/tiny_agent";
  const TempTree tree;
  const std::string dir = tree.path("m").string();
  ASSERT_EQ(sluice("synth --size tiny " + dir).exit_code, 0);
  const Outcome other_shape = sluice("verify --golden " + golden + " " + dir);
  EXPECT_EQ(other_shape.exit_code, 1);
  EXPECT_TRUE(is_one_error_line(other_shape.err)) << other_shape.err;

  const CheckpointCopy copy;
  for (const auto& entry : std::filesystem::directory_iterator(copy.dir())) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors")) continue;
    std::string bytes = copy.content(name);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    copy.replace(name, bytes);
    break;
  }
  const Outcome other_weights = sluice("verify --golden " + golden + " " + copy.dir());
  EXPECT_EQ(other_weights.exit_code, 1);
  EXPECT_TRUE(is_one_error_line(other_weights.err)) << other_weights.err;
  EXPECT_NE(other_weights.err.find("the weights in"), std::string::npos) << other_weights.err;
}

TEST(Cli, DiffComparesTwoBackends) {
  const Outcome same = sluice("diff --backends ref,scalar --num-ids 4");
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("no op departs"), std::string::npos) << same.out;
  const Outcome strict = sluice("diff --backends ref,scalar --num-ids 40 --max-ulps 0");
  EXPECT_EQ(strict.exit_code, strict.out.find("first to depart") == std::string::npos ? 0 : 1);
  const Outcome unknown = sluice("diff --backends ref,abacus");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("expected one of ref"), std::string::npos) << unknown.err;
}

TEST(Cli, RunRepeats) {
  const std::string arguments = "run --chat --prompt 'Hello' --max-tokens 12";
  const Outcome first = sluice(arguments);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(sluice(arguments).out, first.out);
  EXPECT_EQ(sluice(arguments + " --threads 1").out, first.out);
  const std::string sampled = arguments + " --temperature 2 --seed ";
  EXPECT_EQ(sluice(sampled + "1").out, sluice(sampled + "1").out);
  const Outcome logprobs = sluice(arguments + " --logprobs 2");
  EXPECT_TRUE(logprobs.out.starts_with("{\"id\": ")) << logprobs.out;
  const Outcome ids = sluice("run --ids 10,11,12 --max-tokens 3 --ignore-stops");
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), ' '), 2) << ids.out;
}

TEST(Cli, TheAgentWorksOnAFolder) {
  const TempTree tree;
  tree.file("notes.txt", "The kettle is\tblue.\n");
  tree.file("docs/guide.md", "# Guide\n");
  const Outcome outcome = sluice("agent --dir " + tree.root().string() +
                                 " --task 'List the files here.' --task 'Read notes.txt.'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("call: list_dir"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("    docs/\n    notes.txt\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("    The kettle is\tblue.\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("answer: "), std::string::npos);
  EXPECT_NE(outcome.out.find(" tokens/s]"), std::string::npos);
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "no colour in a pipe";
}

TEST(Cli, TheDemoOfRunEndsWithRightAnswers) {
  // The tasks themselves come from ./run: a README that grew once sent the embedded model round in circles.
  const std::filesystem::path root = SLUICE_SOURCE_DIR;
  std::ifstream script(root / "run");
  std::string arguments = "agent --dir " + root.string();
  int num_tasks = 0;
  for (std::string line; std::getline(script, line);) {
    const size_t task = line.find("  --task \"");
    if (task != 0) continue;
    arguments.append(" ").append(line, 2, line.rfind('"') - 1);
    ++num_tasks;
  }
  ASSERT_EQ(num_tasks, 3);
  const Outcome outcome = sluice(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root / "src")) {
    folders.push_back(entry.path().filename().string().append("/"));
  }
  std::sort(folders.begin(), folders.end());
  std::string list = "answer: src has:\n```\n";
  for (const std::string& folder : folders) list.append(folder).append("\n");
  EXPECT_NE(outcome.out.find(list.append("```")), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("answer: The first heading of README.md is: sluice"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("answer: DeltaNet is in:\n```\ndocs/"), std::string::npos)
      << outcome.out;
}

TEST(Cli, AnAgentThatIsCutOffFails) {
  const Outcome context = sluice("agent --task 'List the files here.' --context 256");
  EXPECT_EQ(context.exit_code, 1);
  EXPECT_EQ(context.out, "> List the files here.\n") << "no figures of a turn that was not";
  const Outcome length = sluice("agent --task 'List the files here.' --max-tokens 3");
  EXPECT_EQ(length.exit_code, 1);
  EXPECT_NE(length.err.find("--max-tokens"), std::string::npos) << length.err;
  const Outcome steps = sluice("agent --task 'List the files here.' --max-steps 1");
  EXPECT_EQ(steps.exit_code, 1);
  EXPECT_NE(steps.err.find("--max-steps"), std::string::npos) << steps.err;
}

TEST(Cli, EvalScoresRecordedConversations) {
  const std::string file = SLUICE_SOURCE_DIR "/tools/tiny_agent/heldout.jsonl";
  const Outcome outcome = sluice("eval " + file + " --limit 5 --min-exact 0.2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("all "), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace sluice
