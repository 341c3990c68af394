#include "tests/ops/attention_case.h"
#include "tests/ops/attention_twin.h"

namespace sluice {
namespace {

OP_CASES(attn_prepare) {
  for (const int32_t position : {0, 1, 255, 256, 1099}) {
    cases.push_back(attn_prepare_case({.heads = 6, .kv_heads = 1, .runs = {{position, 1}}}));
  }
  cases.push_back(attn_prepare_case({.heads = 8, .kv_heads = 2, .runs = {{250, 9}, {17, 1}}}));
  cases.push_back(attn_prepare_case({.heads = 24, .kv_heads = 4, .runs = {{3, 2}}}));
  cases.push_back(attn_prepare_case({.heads = 6, .kv_heads = 1, .runs = {{200, 70}}}));
  cases.push_back(attn_prepare_case(
      {.heads = 4, .kv_heads = 1, .runs = {{9, 3}}, .magnitude = 1e-3, .pad = 3}));
  cases.push_back(attn_prepare_case(
      {.heads = 2, .kv_heads = 1, .runs = {{9, 3}}, .head_dim = 64, .rotary_dim = 16}));
}

OP_CASES(attention) {
  for (const int32_t position : {0, 1, 2, 254, 255, 256, 257, 511, 512, 1099}) {
    cases.push_back(attention_case({.heads = 6, .kv_heads = 1, .runs = {{position, 1}}}));
  }
  for (const int32_t rows : {2, 3, 15, 16, 17, 33}) {
    cases.push_back(attention_case({.heads = 4, .kv_heads = 1, .runs = {{250, rows}}}));
  }
  cases.push_back(attention_case({.heads = 8, .kv_heads = 2, .runs = {{600, 1}, {17, 1}, {0, 3}}}));
  cases.push_back(attention_case({.heads = 24, .kv_heads = 4, .runs = {{300, 2}}}));
  cases.push_back(attention_case({.heads = 4, .kv_heads = 1, .runs = {{0, 70}}}));
  cases.push_back(attention_case({.heads = 4, .kv_heads = 1, .runs = {{40, 3}}, .pad = 3}));
  // A peaked and a flat softmax.
  cases.push_back(
      attention_case({.heads = 4, .kv_heads = 1, .runs = {{300, 2}}, .magnitude = 8.0}));
  cases.push_back(
      attention_case({.heads = 4, .kv_heads = 1, .runs = {{300, 2}}, .magnitude = 1e-3}));
  cases.push_back(attention_case(
      {.heads = 2, .kv_heads = 1, .runs = {{260, 3}}, .head_dim = 64, .rotary_dim = 16}));
}

// ---- Negative controls

template <PrepareMistake kMistake>
void prepare_op(const AttnPrepareArgs& args, OpContext&) {
  prepare_twin(args, kMistake);
}
template <AttentionMistake kMistake>
void attention_op(const AttentionArgs& args, OpContext&) {
  attention_twin(args, kMistake);
}

TEST(attn_prepare, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  int mistake = 0;
  for (const auto op :
       {prepare_op<PrepareMistake::kMissingOnePlus>, prepare_op<PrepareMistake::kRotateEvenOdd>,
        prepare_op<PrepareMistake::kRotateOtherWay>, prepare_op<PrepareMistake::kRotateWholeHead>,
        prepare_op<PrepareMistake::kPositionOffByOne>,
        prepare_op<PrepareMistake::kGateHalvesSwapped>,
        prepare_op<PrepareMistake::kGatesAfterAllQueries>,
        prepare_op<PrepareMistake::kRotateUnroundedNorm>,
        prepare_op<PrepareMistake::kKeyNotRotated>, prepare_op<PrepareMistake::kValueNormed>}) {
    wrong.attn_prepare = op;
    EXPECT_TRUE(any_case_rejects(attn_prepare_cases, check_values, wrong)) << ++mistake;
  }
}

TEST(attention, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  int mistake = 0;
  for (const auto op :
       {attention_op<AttentionMistake::kPageOffByOne>, attention_op<AttentionMistake::kNotCausal>,
        attention_op<AttentionMistake::kMissesItself>, attention_op<AttentionMistake::kHeadModulo>,
        attention_op<AttentionMistake::kNoScale>, attention_op<AttentionMistake::kScoresNotRounded>,
        attention_op<AttentionMistake::kProbabilitiesNotRounded>,
        attention_op<AttentionMistake::kGateIsSilu>,
        attention_op<AttentionMistake::kGateHalvesSwapped>}) {
    ++mistake;
    wrong.attention = op;
    EXPECT_TRUE(any_case_rejects(attention_cases, check_values, wrong)) << mistake;
  }
}

/// The twins without a mistake pass: so what the controls reject is the mistake.
TEST(attn_prepare, AnIndependentImplementationAgrees) {
  OpTable twin = ref_ops();
  twin.attn_prepare = prepare_op<PrepareMistake::kNone>;
  expect_all(attn_prepare_cases, check_values, {&twin});
}

TEST(attention, AnIndependentImplementationAgrees) {
  OpTable twin = ref_ops();
  twin.attention = attention_op<AttentionMistake::kNone>;
  expect_all(attention_cases, check_values, {&twin});
}

/// Stale bytes of other sessions beyond the context, NaN included, change nothing: the cells a case
/// has not reached are poison, and no output may be.
TEST(attention, ALongerTableChangesNothing) {
  for (const OpTable* backend : with_ref(&OpTable::attention)) {
    const OpCase longer = attention_case({.heads = 4, .kv_heads = 1, .runs = {{300, 40}}});
    OpCase shorter = longer;
    shorter.runs[0].num_rows = 1;
    const World a = run_case(longer, *backend);
    const World b = run_case(shorter, *backend);
    const Tensor& x = a.tensors.back();
    const Tensor& y = b.tensors.back();
    const auto row = x.stride * static_cast<int64_t>(x.element_size());
    EXPECT_TRUE(std::equal(x.bytes.begin(), x.bytes.begin() + row, y.bytes.begin()))
        << backend->name;
  }
}

}  // namespace
}  // namespace sluice
