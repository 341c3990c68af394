// The products of decays inside gdn_step and gdn_chunk, against fp64 exp of the fp64 sum of g. Keys are
// one-hot and values lie on the diagonal, so the state is diagonal; q is the same in every dim, so that
// each row's output shows all of it: o_t[i] = value_i exp(G_t - G_s) / 128, s being the last row that
// wrote to key i. Every row thus reads every offset at once, within its chunk and across boundaries.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/ops/gdn_chunk_twin.h"
#include "tests/ops/gdn_session.h"
#include "tests/ops/gdn_twin.h"
#include "tests/ops/statistic_judge.h"

namespace sluice {
namespace {

constexpr GdnShape kShape{.num_k_heads = 2, .num_v_heads = 6};
constexpr int64_t kDim = 128;

/// g of a row, by value head.
struct Decay {
  const char* name;
  double (*g)(int64_t row, Rng& rng);
};
constexpr Decay kDecays[] = {
    {"strong", [](int64_t, Rng&) { return -20.0; }},
    {"weak", [](int64_t, Rng&) { return -1e-4; }},
    {"moderate", [](int64_t, Rng& rng) { return -rng.uniform(0.5, 1.5); }},
    {"mixed", [](int64_t, Rng& rng) { return -rng.log_uniform(1e-4, 20.0); }},
    // Sums in the hundreds, of which differences as small as 1e-4 must be right.
    {"weak after strong", [](int64_t row, Rng&) { return row % kGdnChunk < 40 ? -20.0 : -1e-4; }},
    {"none", [](int64_t, Rng&) { return 0.0; }},
};
static_assert(std::size(kDecays) == kShape.num_v_heads);

struct Layout {
  /// Key of row t: t mod period. Below kGdnChunk a chunk meets its own keys again.
  int64_t period;
  int64_t num_rows;
};

/// 1 or 0. All rows of the first two chunks write, none of the third, a quarter of the others; where
/// keys return within a chunk, half of the rows.
float beta_of(const Layout& layout, int64_t row, Rng& rng) {
  if (layout.period < kGdnChunk) return rng.below(2) == 0 ? 1.0f : 0.0f;
  if (row < 2 * kGdnChunk) return 1.0f;
  return row >= 3 * kGdnChunk && rng.below(4) == 0 ? 1.0f : 0.0f;
}

/// The inputs, and what the diagonal must hold after each row.
class DecayCase {
 public:
  explicit DecayCase(const Layout& of_layout)
      : layout(of_layout), sequence(kShape, of_layout.num_rows) {
    Rng rng(static_cast<uint64_t>(layout.period));
    for (int64_t t = 0; t < layout.num_rows; ++t) {
      const int64_t key = t % layout.period;
      for (int64_t h = 0; h < kShape.num_k_heads; ++h) {
        // So long that the norm's eps is nothing, and powers of two.
        std::fill_n(sequence.q(t, h), kDim, to_bf16(1024.0f));
        sequence.k(t, h)[key] = to_bf16(1024.0f);
      }
      for (int64_t h = 0; h < kShape.num_v_heads; ++h) {
        sequence.v(t, h)[key] = to_bf16(static_cast<float>(rng.uniform(1.0, 2.0)));
        sequence.g_at(t, h) = static_cast<float>(kDecays[h].g(t, rng));
        sequence.beta_at(t, h) = beta_of(layout, t, rng);
      }
    }
  }

  Layout layout;
  GdnSequence sequence;
};

/// One head's diagonal, row after row.
struct Diagonal64 {
  struct Cell {
    double value = 0.0;
    double exponent = 0.0;
    int64_t written_at = -1;
    double held() const { return value * std::exp(exponent); }
  };

  void advance(GdnSequence& sequence, const Layout& layout, int64_t row, int64_t head) {
    const auto g = static_cast<double>(sequence.g_at(row, head));
    for (Cell& cell : cells) cell.exponent += g;
    const int64_t key = row % layout.period;
    if (sequence.beta_at(row, head) == 0.0f) return;
    cells[static_cast<size_t>(key)] = {static_cast<double>(to_float(sequence.v(row, head)[key])),
                                       0.0, row};
  }
  std::vector<Cell> cells = std::vector<Cell>(kDim);
};

enum class Form { kStep, kChunk };

/// Roundings between a cell's write and its read. Step: a decay (exp, product) a row. Chunk: the
/// difference of sums, rounded as an exponent, is wrong by a rounding of its size; two exponentials of
/// an ulp with their products; a decay a chunk in between; for keys that return, what was there before
/// is taken off again, each time with a few roundings of its own.
double bound_of(Form form, const Layout& layout, const Diagonal64::Cell& cell, int64_t row) {
  constexpr double kRead = 6;  // q: root, division, product, scale, product; the sum has one term
  const auto rows = static_cast<double>(row - cell.written_at);
  if (form == Form::kStep) return (2 * rows + kRead) * kF32Rounding;
  const auto chunks = static_cast<double>(row / kGdnChunk - cell.written_at / kGdnChunk);
  const double returns =
      layout.period < kGdnChunk ? 4.0 * kGdnChunk / static_cast<double>(layout.period) : 0.0;
  return (std::abs(cell.exponent) + 6 + 2 * chunks + returns + kRead) * kF32Rounding;
}

std::string place(const Layout& layout, const Diagonal64::Cell& cell, int64_t row, int64_t head) {
  return fmt::format("{}, keys return after {}: written by row {}, read by row {}",
                     kDecays[head].name, layout.period, cell.written_at, row);
}

void see_row(Worst& worst, Form form, const Layout& layout, const Diagonal64& diagonal, int64_t row,
             int64_t head, const bf16* o) {
  for (size_t i = 0; i < diagonal.cells.size(); ++i) {
    const Diagonal64::Cell& cell = diagonal.cells[i];
    worst.see(error_before_rounding(o[i], cell.held() / kDim), bound_of(form, layout, cell, row),
              [&] { return "output, " + place(layout, cell, row, head); });
  }
}

void see_state(Worst& worst, Form form, const Layout& layout, const Diagonal64& diagonal,
               int64_t row, int64_t head, const float* S) {
  for (int64_t i = 0; i < kDim; ++i) {
    const Diagonal64::Cell& cell = diagonal.cells[static_cast<size_t>(i)];
    const double held = cell.held();
    const double off = std::abs(static_cast<double>(S[i * kDim + i]) - held);
    const double error = held < kVanishing ? (off <= kVanishing ? 0.0 : off) : off / held;
    worst.see(error, bound_of(form, layout, cell, row),
              [&] { return "state, " + place(layout, cell, row, head); });
    for (int64_t j = 0; j < kDim; ++j) {
      if (i != j && S[i * kDim + j] != 0.0f) {
        worst.see(1.0, kF32Rounding, [&] { return fmt::format("state[{}, {}]", i, j); });
      }
    }
  }
}

Worst check_decays(const OpTable& table, Form form, const std::vector<Layout>& layouts) {
  Worst worst;
  for (const Layout& layout : layouts) {
    DecayCase c(layout);
    GdnSession session(c.sequence, table);
    if (form == Form::kStep) {
      session.step(layout.num_rows);
    } else {
      session.chunk(layout.num_rows);
    }
    for (int64_t h = 0; h < kShape.num_v_heads; ++h) {
      Diagonal64 diagonal;
      for (int64_t t = 0; t < layout.num_rows; ++t) {
        diagonal.advance(c.sequence, layout, t, h);
        see_row(worst, form, layout, diagonal, t, h, session.o(t) + h * kDim);
      }
      see_state(worst, form, layout, diagonal, layout.num_rows - 1, h,
                session.state().data() + h * kDim * kDim);
    }
  }
  return worst;
}

const std::vector<Layout> kLayouts = {{128, 330}, {24, 150}, {64, 128}};

TEST(DecayStatistics, StepDecaysAreFp32) {
  for (const OpTable* backend : with_ref(&OpTable::gdn_step)) {
    expect_within(fmt::format("step, {}", backend->name),
                  check_decays(*backend, Form::kStep, kLayouts));
  }
}

TEST(DecayStatistics, ChunkDecaysAreFp32) {
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    expect_within(fmt::format("chunk, {}", backend->name),
                  check_decays(*backend, Form::kChunk, kLayouts));
  }
}

// ---- Negative controls

const std::vector<Layout> kControlLayouts = {{128, 140}};

template <ChunkMistake kMistake>
Worst check_wrong_chunk() {
  OpTable wrong = ref_ops();
  wrong.gdn_chunk = [](const GdnArgs& args, OpContext&) { gdn_chunk_twin(args, kMistake); };
  return check_decays(wrong, Form::kChunk, kControlLayouts);
}

TEST(DecayStatistics, RejectsWrongChunks) {
  expect_within("no mistake", check_wrong_chunk<ChunkMistake::kNone>());
  expect_beyond("sums without the row's own g",
                check_wrong_chunk<ChunkMistake::kDecayAnchoredEarly>());
  expect_beyond("decay once too often", check_wrong_chunk<ChunkMistake::kDecayOnceTooOften>());
  expect_beyond("sum runs on into the next chunk",
                check_wrong_chunk<ChunkMistake::kSumNotRestarted>());
  expect_beyond("sum kept in fp32", check_wrong_chunk<ChunkMistake::kSumInFp32>());
  expect_beyond("decays rounded to bf16", check_wrong_chunk<ChunkMistake::kDecayRounded>());
  expect_beyond("boundary not decayed", check_wrong_chunk<ChunkMistake::kBoundaryNotDecayed>());
  expect_beyond("padding not zeroed", check_wrong_chunk<ChunkMistake::kPaddingNotZeroed>());
}

template <GdnMistake kMistake>
Worst check_wrong_step() {
  OpTable wrong = ref_ops();
  wrong.gdn_step = [](const GdnArgs& args, OpContext&) { gdn_twin(args, kMistake); };
  return check_decays(wrong, Form::kStep, kControlLayouts);
}

/// The arbiter with another g.
template <float (*kGate)(const GdnArgs&, int64_t row, int64_t head)>
Worst check_wrong_gate() {
  OpTable wrong = ref_ops();
  wrong.gdn_step = [](const GdnArgs& args, OpContext& context) {
    std::vector<float> g;
    for (int64_t r = 0; r < args.g.num_rows; ++r) {
      for (int64_t h = 0; h < args.g.num_cols; ++h) g.push_back(kGate(args, r, h));
    }
    GdnArgs other = args;
    other.g = {g.data(), args.g.num_rows, args.g.num_cols};
    ref_ops().gdn_step(other, context);
  };
  return check_decays(wrong, Form::kStep, kControlLayouts);
}

float gate_of_the_row_before(const GdnArgs& args, int64_t row, int64_t head) {
  return args.g.row(std::max<int64_t>(0, row - 1))[head];
}
float gate_whose_decay_is_bf16(const GdnArgs& args, int64_t row, int64_t head) {
  return std::log(rb(std::exp(args.g.row(row)[head])));
}
float gate_doubled_at_boundaries(const GdnArgs& args, int64_t row, int64_t head) {
  return args.g.row(row)[head] * (row > 0 && row % kGdnChunk == 0 ? 2.0f : 1.0f);
}

TEST(DecayStatistics, RejectsWrongSteps) {
  expect_within("no mistake", check_wrong_step<GdnMistake::kNone>());
  expect_beyond("decay after the update", check_wrong_step<GdnMistake::kDecayAfterUpdate>());
  expect_beyond("1 + g for exp(g)", check_wrong_step<GdnMistake::kDecayNotExponentiated>());
  expect_beyond("the row before's g", check_wrong_gate<gate_of_the_row_before>());
  expect_beyond("decays rounded to bf16", check_wrong_gate<gate_whose_decay_is_bf16>());
  expect_beyond("twice at a boundary", check_wrong_gate<gate_doubled_at_boundaries>());
}

}  // namespace
}  // namespace sluice
