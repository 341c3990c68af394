// The CUDA table as the op tables of tests/ops want one: each call is a step of its own, weights are packed on the fly, and what it
// wrote is there when it returns. Operands lie in pinned memory (pinned_new.cc).
//
// Shapes that check_shape refuses go to the arbiter; at the end most calls must have gone to the GPU.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device.h"
#include "ops/cuda/pack.h"
#include "tests/ops/op_cases.h"

namespace sluice {
namespace {

constexpr int64_t kRowsMax = 512;
constexpr int64_t kContextMax = 8192;
constexpr size_t kWeightBytes = size_t{64} << 20;
constexpr int64_t kKMultiple = 128;
constexpr int64_t kWidthMax = 32768;  // of any linear's input in the tables
constexpr int64_t kGdnHeadDim = 128;
constexpr int64_t kAttentionHeadDim = 256;

int64_t num_on_gpu = 0;
int64_t num_on_arbiter = 0;

/// What the calls share.
struct Gpu {
  const OpTable& ops = **cuda_ops();
  std::unique_ptr<BackendState> state;
  Arena scratch, weights;

  static OpDims dims() {
    OpDims dims;
    dims.hidden = dims.intermediate = kWidthMax;
    dims.num_rows_max = kRowsMax;
    dims.context_max = kContextMax;
    return dims;
  }
  static Arena device_arena(size_t num_bytes, std::string_view what) {
    Result<Buffer> buffer = cuda::device_memory().allocate(num_bytes, what, MemoryKind::kPrivate);
    SLUICE_CHECK(buffer.ok());
    return Arena(*std::move(buffer));
  }
  Gpu()
      : state(open_backend_state(ops, dims()).value()),
        scratch(device_arena(kWeightBytes, "op scratch")),
        weights(device_arena(kWeightBytes, "op weights")) {}
};

/// Left to the process's end, where the driver may go first.
Gpu& gpu() {
  static auto* gpu = new Gpu;
  return *gpu;
}

WeightView packed(const WeightView& w) {
  return cuda::pack_weight(
      w, gpu().weights.take<std::byte>(static_cast<int64_t>(cuda::packed_bytes(w))));
}

/// One step with one op.
template <auto kOp, typename Args>
void call(const Args& args, const StepRows& rows) {
  ++num_on_gpu;
  OpContext context;
  context.state = gpu().state.get();
  context.scratch = &gpu().scratch;
  gpu().scratch.reset();
  SLUICE_CHECK(!gpu().ops.begin_step(rows, context));
  (gpu().ops.*kOp)(args, context);
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(cuda::device().stream));
  gpu().weights.reset();
}

template <auto kOp, typename Args>
void call_on_arbiter(const Args& args, OpContext& context) {
  ++num_on_arbiter;
  (ref_ops().*kOp)(args, context);
}

template <auto kOp, typename Args>
void call_rows(const Args& args, int64_t num_rows, std::span<const RowRun> runs) {
  const std::vector<int32_t> ids(static_cast<size_t>(num_rows));
  call<kOp>(args, {.token_ids = ids, .runs = runs, .logit_rows = {}, .num_rows = num_rows});
}

/// Ops that know no runs.
template <auto kOp, typename Args>
void call_plain(const Args& args, int64_t num_rows) {
  call_rows<kOp>(args, num_rows, plain_rows(num_rows));
}

void embed(const EmbedArgs& args, OpContext&) {
  const int64_t num_rows = args.out.num_rows;
  const std::vector<RowRun> runs = plain_rows(num_rows);
  call<&OpTable::embed>(
      args, {.token_ids = args.token_ids, .runs = runs, .logit_rows = {}, .num_rows = num_rows});
}

void rms_norm(const RmsNormArgs& args, OpContext&) {
  call_plain<&OpTable::rms_norm>(args, args.x.num_rows);
}

void gated_rms_norm(const GatedRmsNormArgs& args, OpContext& context) {
  if (static_cast<int64_t>(args.weight.size()) != kGdnHeadDim) {
    return call_on_arbiter<&OpTable::gated_rms_norm>(args, context);
  }
  call_plain<&OpTable::gated_rms_norm>(args, args.o.num_rows);
}

/// A copy whose rows begin at multiples of 16 bytes, as a model's buffers do and the tables' views do not.
class AlignedRows {
 public:
  explicit AlignedRows(const MatView<const bf16>& from)
      : values_(static_cast<size_t>(from.num_rows * stride_of(from))),
        view_(values_.data(), from.num_rows, from.num_cols, stride_of(from)) {
    for (int64_t row = 0; row < from.num_rows; ++row) {
      std::copy_n(from.row(row), from.num_cols, view_.row(row));
    }
  }
  const MatView<bf16>& view() const { return view_; }
  void copy_to(const MatView<bf16>& to) const {
    for (int64_t row = 0; row < to.num_rows; ++row) {
      std::copy_n(view_.row(row), to.num_cols, to.row(row));
    }
  }

 private:
  static int64_t stride_of(const MatView<const bf16>& view) { return (view.num_cols + 7) / 8 * 8; }
  std::vector<bf16> values_;
  MatView<bf16> view_;
};

void linear(const LinearArgs& args, OpContext& context) {
  if (args.x.num_cols % kKMultiple != 0) return call_on_arbiter<&OpTable::linear>(args, context);
  const AlignedRows x(args.x);
  std::vector<AlignedRows> outs;
  std::vector<Projection> projections;
  for (const Projection& p : args.projections) outs.emplace_back(p.out);
  for (size_t i = 0; i < outs.size(); ++i) {
    projections.push_back({packed(args.projections[i].weight), outs[i].view()});
  }
  call_plain<&OpTable::linear>(LinearArgs{x.view(), projections}, args.x.num_rows);
  for (size_t i = 0; i < outs.size(); ++i) outs[i].copy_to(args.projections[i].out);
}

void linear_residual(const LinearResidualArgs& args, OpContext& context) {
  if (args.x.num_cols % kKMultiple != 0) {
    return call_on_arbiter<&OpTable::linear_residual>(args, context);
  }
  const AlignedRows x(args.x);
  const AlignedRows residual(args.residual);
  call_plain<&OpTable::linear_residual>(
      LinearResidualArgs{x.view(), packed(args.weight), residual.view()}, args.x.num_rows);
  residual.copy_to(args.residual);
}

void gate_up(const GateUpArgs& args, OpContext& context) {
  // The loader refuses gate and up of different formats, and the kernels have none for them.
  if (args.x.num_cols % kKMultiple != 0 || args.gate.format != args.up.format) {
    return call_on_arbiter<&OpTable::gate_up>(args, context);
  }
  const AlignedRows x(args.x);
  const AlignedRows out(args.out);
  call_plain<&OpTable::gate_up>(
      GateUpArgs{x.view(), packed(args.gate), packed(args.up), out.view()}, args.x.num_rows);
  out.copy_to(args.out);
}

void conv1d(const Conv1dArgs& args, OpContext&) {
  call_rows<&OpTable::conv1d>(args, args.x.num_rows, args.runs);
}

void gdn_gates(const GdnGatesArgs& args, OpContext&) {
  call_plain<&OpTable::gdn_gates>(args, args.a.num_rows);
}

template <auto kOp>
void gdn(const GdnArgs& args, OpContext& context) {
  if (args.shape.head_k_dim != kGdnHeadDim || args.shape.head_v_dim != kGdnHeadDim) {
    return call_on_arbiter<kOp>(args, context);
  }
  call_rows<kOp>(args, args.qkv.num_rows, args.runs);
}

void attn_prepare(const AttnPrepareArgs& args, OpContext& context) {
  if (args.shape.head_dim != kAttentionHeadDim) {
    return call_on_arbiter<&OpTable::attn_prepare>(args, context);
  }
  call_rows<&OpTable::attn_prepare>(args, args.qg.num_rows, args.runs);
}

void attention(const AttentionArgs& args, OpContext& context) {
  if (args.shape.head_dim != kAttentionHeadDim) {
    return call_on_arbiter<&OpTable::attention>(args, context);
  }
  call_rows<&OpTable::attention>(args, args.q.num_rows, args.runs);
}

OpTable make_table() {
  OpTable table = ref_ops();
  table.name = "cuda";
  table.embed = embed;
  table.rms_norm = rms_norm;
  table.gated_rms_norm = gated_rms_norm;
  table.linear = linear;
  table.linear_residual = linear_residual;
  table.gate_up = gate_up;
  table.conv1d = conv1d;
  table.gdn_gates = gdn_gates;
  table.gdn_step = gdn<&OpTable::gdn_step>;
  // While it is the recurrent form under another name it fills no checkpoint, and there is nothing to check.
  const bool has_chunk = gpu().ops.gdn_chunk != gpu().ops.gdn_step;
  if (has_chunk) table.gdn_chunk = gdn<&OpTable::gdn_chunk>;
  table.attn_prepare = attn_prepare;
  table.attention = attention;
  return table;
}

/// A table whose calls all went to the arbiter would pass.
class MostCallsReachTheGpu : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("%ld calls on the GPU, %ld of shapes it refuses\n", num_on_gpu, num_on_arbiter);
    EXPECT_GE(num_on_gpu, num_on_arbiter);
  }
};
const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new MostCallsReachTheGpu);

}  // namespace

std::vector<const OpTable*> tested_backends() {
  static const OpTable table = make_table();
  return {&table};
}

}  // namespace sluice
