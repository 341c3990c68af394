// Thousands of rows through gdn_step and gdn_chunk, state and outputs against an fp64 recurrence: where
// a rounding too many, or one row of padding, adds up.
#include "tests/ops/gdn_drift.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/gdn_chunk_twin.h"
#include "tests/ops/gdn_twin.h"

namespace sluice {
namespace {

constexpr int64_t kRows = 4000;
constexpr int64_t kTailsFrom = 3 * kGdnChunk;
constexpr int64_t kTailMax = 15;
/// A prompt that ends inside a chunk.
constexpr int64_t kPrompt = 15 * kGdnChunk + 9;
constexpr int64_t kManyRows = 1000;

struct Drift {
  Drift(int64_t num_rows, double qk, const std::vector<int64_t>& marks)
      : sequence(drift_sequence(num_rows, qk)), truth(sequence, marks) {}

  GdnSequence sequence;
  DriftTruth truth;
};

const Drift& long_drift() {
  static const Drift drift = [] {
    std::vector<int64_t> marks{1, 64, 65, kPrompt, kManyRows, kRows};
    for (int64_t n = 0; n <= kTailMax; ++n) marks.push_back(kTailsFrom + n);
    return Drift(kRows, 0.5, marks);
  }();
  return drift;
}

/// Keys whose sum of squares is about the norm's eps.
const Drift& tiny_drift() {
  static const Drift drift(130, 1e-4, {64, 65, 130});
  return drift;
}

void see(Worst& worst, const Drift& drift, int64_t first, GdnSession& session) {
  worst.see(drift.truth.state_error(session.position(), session.state()));
  worst.see(drift.truth.output_error(first, session.position(), session));
}

void nothing(std::vector<float>&) {}
void round_to_bf16(std::vector<float>& state) {
  std::ranges::transform(state, state.begin(), rb);
}

/// One row a call, as decode does; `between` acts on the state after each.
Worst decode(const Drift& drift, const OpTable& table, const std::vector<int64_t>& marks,
             void (*between)(std::vector<float>& state)) {
  Worst worst;
  GdnSession session(drift.sequence, table);
  for (const int64_t mark : marks) {
    const int64_t first = session.position();
    while (session.position() < mark) {
      session.step(1);
      between(session.state());
    }
    see(worst, drift, first, session);
  }
  return worst;
}

/// Two chunks; from there, each in one call, a third and a tail of every length.
Worst prompt_with_tails(const OpTable& table) {
  const Drift& drift = long_drift();
  Worst worst;
  GdnSession chunks(drift.sequence, table);
  chunks.chunk(kTailsFrom - kGdnChunk);
  for (int64_t n = 0; n <= kTailMax; ++n) {
    GdnSession session = chunks;
    session.chunk(kGdnChunk + n);
    see(worst, drift, 0, session);
  }
  return worst;
}

Worst prompt_then_decode(const OpTable& table, int64_t last) {
  const Drift& drift = long_drift();
  Worst worst;
  GdnSession session(drift.sequence, table);
  session.chunk(kPrompt);
  see(worst, drift, 0, session);
  while (session.position() < last) session.step(1);
  see(worst, drift, kPrompt, session);
  return worst;
}

Worst tiny_keys(const OpTable& table) {
  const Drift& drift = tiny_drift();
  Worst worst = decode(drift, table, {64, 65, 130}, nothing);
  GdnSession session(drift.sequence, table);
  session.chunk(drift.sequence.num_rows);
  see(worst, drift, 0, session);
  return worst;
}

TEST(GdnDrift, DecodeStaysWhereFp64Is) {
  for (const OpTable* backend : tested_backends(&OpTable::gdn_step)) {
    expect_within(backend->name,
                  decode(long_drift(), *backend, {1, 64, 65, kManyRows, kRows}, nothing));
  }
  expect_within("ref", decode(long_drift(), ref_ops(), {1, 64, 65, kTailsFrom}, nothing));  // slow
}

TEST(GdnDrift, PromptsEndAnywhere) {
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    expect_within(backend->name, prompt_with_tails(*backend));
  }
}

TEST(GdnDrift, PromptThenDecodeStaysWhereFp64Is) {
  for (const OpTable* backend : tested_backends(&OpTable::gdn_chunk)) {
    expect_within(backend->name, prompt_then_decode(*backend, kRows));
  }
  expect_within("ref", prompt_then_decode(ref_ops(), kManyRows));
}

TEST(GdnDrift, TinyKeysKeepTheirEps) {
  for (const OpTable* backend : with_ref(&OpTable::gdn_step)) {
    expect_within(backend->name, tiny_keys(*backend));
  }
}

// ---- Negative controls

template <GdnMistake kMistake>
OpTable with_wrong_steps() {
  OpTable wrong = ref_ops();
  wrong.gdn_step = [](const GdnArgs& args, OpContext&) { gdn_twin(args, kMistake); };
  return wrong;
}

template <ChunkMistake kMistake>
OpTable with_wrong_chunks() {
  OpTable wrong = ref_ops();
  wrong.gdn_chunk = [](const GdnArgs& args, OpContext&) { gdn_chunk_twin(args, kMistake); };
  return wrong;
}

Worst decode_rows(const OpTable& table) {
  return decode(long_drift(), table, {1, 64, 65}, nothing);
}

TEST(GdnDrift, RejectsWrongSteps) {
  expect_within("no mistake", decode_rows(with_wrong_steps<GdnMistake::kNone>()));
  expect_beyond("decay after the update",
                decode_rows(with_wrong_steps<GdnMistake::kDecayAfterUpdate>()));
  expect_beyond("state kept in bf16", decode(long_drift(), *tested_backends().back(),
                                             {1, 64, 65, kManyRows}, round_to_bf16));
  expect_beyond("l2norm's eps on the mean, tiny keys",
                tiny_keys(with_wrong_steps<GdnMistake::kEpsOnMean>()));
}

TEST(GdnDrift, RejectsWrongTails) {
  expect_within("no mistake", prompt_with_tails(with_wrong_chunks<ChunkMistake::kNone>()));
  expect_beyond("padding not zeroed",
                prompt_with_tails(with_wrong_chunks<ChunkMistake::kPaddingNotZeroed>()));
}

}  // namespace
}  // namespace sluice
