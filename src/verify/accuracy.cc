#include "verify/accuracy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "verify/state_difference.h"

namespace sluice {
namespace {

/// Positions at a prompt's end that are run again one row at a time.
constexpr int64_t kDecodeRows = 16;
/// The envelope is that of all recorded positions. Few of them may be noisier than the average, short prompts are.
constexpr int64_t kManyPositions = 1000;
constexpr double kSlackOfFew = 1.5;
/// One prompt's positions share a text, and their differences rise and fall together. A text on which the oracle itself is noisier than elsewhere gets its share.
constexpr double kSlackOfCase = 2.0;
/// Our states may differ from the oracle's by this multiple of what its own paths differ by.
constexpr double kStateFactor = 3.0;
/// ... and by this whatever they differ by: in the first layers the oracle's two paths have the same bits.
constexpr double kStateFloor = 0x1p-9;
/// Positions whose best id the oracle does not have among its top ids.
constexpr double kOutsideShare = 0.01;
/// The draft head's layer is one more behind the target's: its noise may be this much larger.
constexpr double kDraftFactor = 1.5;

std::vector<bf16> logits_of(std::span<const bf16> row, std::span<const int32_t> ids) {
  std::vector<bf16> out;
  for (const int32_t id : ids) out.push_back(row[static_cast<size_t>(id)]);
  return out;
}

std::span<const bf16> row_of(const StepOutput& output, int64_t i) {
  return {output.logits.row(i), static_cast<size_t>(output.logits.num_cols)};
}

void add_row(std::span<const bf16> row, const TopLogits& golden, int64_t position, Difference* to) {
  const std::span<const int32_t> ids = golden.ids_at(position);
  to->add(ids, golden.logits_at(position), logits_of(row, ids), best_id(row));
}

double row_rms(std::span<const bf16> ours, std::span<const bf16> oracle) {
  double squares = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double d = static_cast<double>(to_float(ours[i])) - to_float(oracle[i]);
    squares += d * d;
  }
  return std::sqrt(squares / static_cast<double>(ours.size()));
}

double share_of(int64_t part, const DifferenceStats& stats) {
  return static_cast<double>(part) / static_cast<double>(stats.num_positions);
}

std::string flips_text(const DifferenceStats& stats) {
  return fmt::format("{} of {} top-1 differ, largest margin there {:.4g}", stats.num_flips,
                     stats.num_positions, stats.worst_margin);
}

/// The worst of many comparisons of one kind, each with its own limit.
struct Worst {
  int64_t count = 0;
  double ratio = -1.0, value = 0.0, limit = 0.0;
  std::string where;

  void add(double new_value, double new_limit, const std::string& place) {
    ++count;
    double new_ratio = new_limit > 0.0 ? new_value / new_limit : (new_value > 0.0 ? INFINITY : 0.0);
    if (std::isnan(new_ratio)) new_ratio = INFINITY;
    if (new_ratio > ratio) {
      ratio = new_ratio;
      value = new_value;
      limit = new_limit;
      where = place;
    }
  }

  void report(std::string_view name, std::string_view what, VerifyReport* to) const {
    if (count == 0) return;
    to->checks.push_back(bounded(std::string(name), "all cases", value, limit,
                                 fmt::format("{} {}, worst: {}", count, what, where)));
  }
};

std::string kind_and_layer(const GoldenState& state) {
  return state.name.substr(0, state.name.rfind('.'));
}

/// Of the recorded states of one kind and layer ("layers.3.key"): single ones say little.
std::map<std::string, double, std::less<>> noise_of_states(const Golden& golden) {
  std::map<std::string, double, std::less<>> noise;
  for (const GoldenCase& c : golden.cases) {
    for (const GoldenState& state : c.states) {
      double& worst = noise[kind_and_layer(state)];
      worst = std::max(worst, joint_noise(state.generation_noise, state.dither_noise));
    }
  }
  return noise;
}

class AccuracyChecks {
 public:
  AccuracyChecks(ModelRunner& runner, const Golden& golden, const Envelope& envelope,
                 int64_t num_ids_max, VerifyReport* report)
      : runner_(runner),
        golden_(golden),
        envelope_(envelope),
        num_ids_max_(num_ids_max),
        report_(report),
        state_noise_(noise_of_states(golden)) {}

  void run() {
    for (const GoldenCase& c : golden_.cases) {
      if (num_ids_max_ > 0 && static_cast<int64_t>(c.ids.size()) > num_ids_max_) continue;
      run_prompt(c);
      run_prefixes(c);
      run_decode(c);
    }
    report_pooled("prompt logits", prompt_);
    report_pooled("decode logits", decode_);
    full_rows_.report("whole rows", "rows of logits, rms", report_);
    states_.report("states", "tensors, relative difference", report_);
    greedy_.report("greedy", "continuations, margin at the first other token", report_);
    report_drafts();
  }

 private:
  void run_prompt(const GoldenCase& c) {
    Difference difference;
    int32_t id = 0;  // the choice behind the prompt
    Sequence sequence = runner_.open();
    const bool has_drafts = runner_.forward().has_mtp() && c.mtp.num_positions() > 0;
    runner_.prompt(c.ids, &sequence, [&](int64_t first, const StepOutput& output) {
      for (int64_t i = 0; i < output.logits.num_rows; ++i) {
        add_row(row_of(output, i), c.prompt, first + i, &difference);
        compare_full_row(c, first + i, row_of(output, i));
      }
      id = best_id(row_of(output, output.logits.num_rows - 1));
      if (has_drafts) run_drafts(c, first, output, sequence);
    });
    compare_states(c, sequence);
    run_greedy(c, id, &sequence);
    runner_.close(&sequence);
    const DifferenceStats stats = difference.stats();
    report_->checks.push_back(
        bounded("prompt", c.name, stats.mean,
                envelope_.mean * std::max(kSlackOfCase, kSlackOfFew * relative_noise(c, envelope_)),
                fmt::format("mean difference; p99 {:.4g}, {}", stats.p99, flips_text(stats))));
    prompt_.merge(difference);
  }

  void compare_full_row(const GoldenCase& c, int64_t position, std::span<const bf16> row) {
    for (size_t i = 0; i < c.full_positions.size(); ++i) {
      if (c.full_positions[i] != position) continue;
      const auto oracle = std::span(c.full_logits).subspan(i * row.size(), row.size());
      full_rows_.add(row_rms(row, oracle), envelope_.p99,
                     fmt::format("{} position {}", c.name, position));
    }
  }

  void run_drafts(const GoldenCase& c, int64_t first, const StepOutput& output,
                  const Sequence& sequence) {
    const int64_t last = static_cast<int64_t>(c.ids.size()) - 1;
    const int64_t count = std::min(output.hidden.num_rows, last - first);
    if (count <= 0) return;
    const auto next =
        std::span(c.ids).subspan(static_cast<size_t>(first + 1), static_cast<size_t>(count));
    const StepOutput drafts =
        runner_.drafts(output.hidden.rows(0, count), next, first, sequence, runner_.prompt_form());
    for (int64_t i = 0; i < count; ++i) add_row(row_of(drafts, i), c.mtp, first + i, &drafts_);
  }

  /// States that were recorded inside the prompt: the prompt ends there once more.
  void run_prefixes(const GoldenCase& c) {
    std::set<int64_t> ends;
    for (const GoldenState& state : c.states) ends.insert(state.num_tokens);
    ends.erase(static_cast<int64_t>(c.ids.size()));
    ends.erase(0);
    for (const int64_t end : ends) {
      Sequence sequence = runner_.open();
      runner_.prompt(std::span(c.ids).first(static_cast<size_t>(end)), &sequence,
                     [](int64_t, const StepOutput&) {});
      compare_states(c, sequence);
      runner_.close(&sequence);
    }
  }

  void compare_states(const GoldenCase& c, const Sequence& sequence) {
    for (const GoldenState& state : c.states) {
      if (state.num_tokens != sequence.position) continue;
      states_.add(state_difference(state, golden_.state_rows, runner_, sequence),
                  envelope_.widening *
                      std::max(kStateFloor, kStateFactor * state_noise_[kind_and_layer(state)]),
                  fmt::format("{} {}", c.name, state.name));
    }
  }

  void run_decode(const GoldenCase& c) {
    const auto num_ids = static_cast<int64_t>(c.ids.size());
    const int64_t first = std::max<int64_t>(1, num_ids - kDecodeRows);
    Sequence sequence = runner_.open();
    runner_.prompt(std::span(c.ids).first(static_cast<size_t>(first)), &sequence,
                   [](int64_t, const StepOutput&) {});
    for (int64_t position = first; position < num_ids; ++position) {
      const StepOutput output =
          runner_.rows(std::span(c.ids).subspan(static_cast<size_t>(position), 1), &sequence);
      add_row(row_of(output, 0), c.prompt, position, &decode_);
    }
    runner_.close(&sequence);
  }

  /// Goes on behind the prompt with our own choice, until it is another one than the oracle's: then the oracle must have been in doubt.
  void run_greedy(const GoldenCase& c, int32_t id, Sequence* sequence) {
    const auto num_new = static_cast<int64_t>(c.greedy_ids.size());
    if (num_new == 0) return;
    int64_t step = 0;
    while (step < num_new && id == c.greedy_ids[static_cast<size_t>(step)]) {
      if (++step == num_new) break;
      id = best_id(row_of(runner_.rows({&id, 1}, sequence), 0));
    }
    const double margin =
        step == num_new ? 0.0 : margin_of(c.greedy.ids_at(step), c.greedy.logits_at(step), id);
    greedy_.add(margin, envelope_.margin,
                fmt::format("{}, {} of {} tokens the same", c.name, step, num_new));
  }

  void report_pooled(std::string_view name, const Difference& difference) {
    const DifferenceStats s = difference.stats();
    if (s.num_positions == 0) return;
    const double slack = s.num_positions < kManyPositions ? kSlackOfFew : 1.0;
    const auto add = [&](std::string_view what, double value, double limit, std::string text) {
      report_->checks.push_back(
          bounded(fmt::format("{} {}", name, what), "all cases", value, limit, std::move(text)));
    };
    add("mean", s.mean, slack * envelope_.mean, fmt::format("{} positions", s.num_positions));
    add("p50", s.p50, slack * envelope_.p50, "");
    add("p90", s.p90, slack * envelope_.p90, "");
    add("p99", s.p99, slack * envelope_.p99, "");
    add("max", s.max, envelope_.max, "");
    add("single", s.largest, envelope_.largest, "largest difference of one logit");
    add("top-1", s.worst_margin, envelope_.margin, flips_text(s));
    add("flips", share_of(s.num_flips, s), slack * envelope_.flip_share, "share of positions");
    add("outside", share_of(s.num_outside, s), kOutsideShare,
        fmt::format("share of positions whose top-1 is none of the oracle's top {}",
                    golden_.cases[0].prompt.top));
  }

  void report_drafts() {
    const DifferenceStats s = drafts_.stats();
    if (s.num_positions == 0) return;
    report_->checks.push_back(bounded("draft head", "all cases", s.mean,
                                      kDraftFactor * envelope_.mean,
                                      fmt::format("mean difference; {}", flips_text(s))));
  }

  ModelRunner& runner_;
  const Golden& golden_;
  const Envelope& envelope_;
  int64_t num_ids_max_;
  VerifyReport* report_;
  std::map<std::string, double, std::less<>> state_noise_;
  Difference prompt_, decode_, drafts_;
  Worst full_rows_, states_, greedy_;
};

}  // namespace

void check_accuracy(ModelRunner& runner, const Golden& golden, const Envelope& envelope,
                    int64_t num_ids_max, VerifyReport* report) {
  AccuracyChecks(runner, golden, envelope, num_ids_max, report).run();
}

}  // namespace sluice
