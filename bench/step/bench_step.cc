// bench_step: whole decode and prefill steps of a checkpoint, against the read bandwidth measured in the same run.
//
// decode GB/s = (weights + recurrent state read and written + keys and values read) / median step time. The yardstick
// reads a buffer larger than any cache on all threads. The signature is a hash of the greedy ids, equal for equal bits.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/arena.h"
#include "bench/kernels/stream.h"
#include "decode/round.h"
#include "engine/backend.h"
#include "model/checkpoint.h"

namespace sluice::bench {
namespace {

constexpr int kStepsPerStreamRead = 4;

struct Options {
  std::string model;
  std::string isa;
  int threads = 0;
  int64_t context = 128;
  int steps = 48;
  int64_t prefill_rows = 512;
  int prefill_rounds = 3;
  size_t stream_mb = 1500;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int64_t linear_bytes(const LayerWeights& layer) {
  size_t bytes = layer.mlp.gate_proj.num_bytes() + layer.mlp.up_proj.num_bytes() +
                 layer.mlp.down_proj.num_bytes();
  if (const auto* gdn = std::get_if<GdnLayerWeights>(&layer.mixer)) {
    for (const WeightView& w :
         {gdn->in_proj_qkv, gdn->in_proj_z, gdn->in_proj_b, gdn->in_proj_a, gdn->out_proj}) {
      bytes += w.num_bytes();
    }
  } else {
    const auto& attention = std::get<AttentionLayerWeights>(layer.mixer);
    for (const WeightView& w :
         {attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj}) {
      bytes += w.num_bytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

int64_t layers_bytes(const ModelWeights& weights) {
  int64_t bytes = 0;
  for (const LayerWeights& layer : weights.layers) bytes += linear_bytes(layer);
  return bytes;
}

/// What one decode row moves besides weights.
int64_t state_traffic(const ModelConfig& config, int64_t context) {
  const StateBytes bytes = state_bytes(config);
  const int64_t layers = config.num_full_attention_layers();
  const int64_t kv =
      layers * 2 * config.key_value_dim() * static_cast<int64_t>(sizeof(bf16)) * context;
  return 2 * bytes.recurrent_per_slot + kv;
}

/// The yardstick: reads of a buffer larger than any cache, one at a time, so that they can be taken between steps.
class Stream {
 public:
  Stream(ThreadPool& pool, size_t megabytes)
      : pool_(pool), buffer_(*Buffer::create(megabytes << 20, "stream buffer")) {
    std::fill_n(buffer_.data(), buffer_.size(), std::byte{1});
  }

  void measure() {
    double best = 1e9;
    for (const ReadPattern pattern : {ReadPattern::kSequential, ReadPattern::kSixteenPages}) {
      const double start = now();
      read_all(pool_, {buffer_.data(), buffer_.size()}, pattern);
      best = std::min(best, now() - start);
    }
    seconds_.push_back(best);
  }
  double gbs_median() const {
    return static_cast<double>(buffer_.size()) / median(seconds_) * 1e-9;
  }

 private:
  ThreadPool& pool_;
  Buffer buffer_;
  std::vector<double> seconds_;
};

uint64_t hash_id(uint64_t hash, int32_t id) {
  return (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
}

int32_t argmax(MatView<const bf16> logits) {
  const bf16* row = logits.row(0);
  int32_t best = 0;
  for (int32_t i = 1; i < logits.num_cols; ++i) {
    if (to_float(row[i]) > to_float(row[best])) best = i;
  }
  return best;
}

std::vector<int32_t> prompt_ids(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  uint64_t x = 1;
  for (int32_t& id : ids) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab_size));
  }
  return ids;
}

class StepBench {
 public:
  StepBench(const Options& options, const LoadedModel& model, const Backend& backend,
            ThreadPool& pool)
      : options_(options), model_(model), pool_(pool) {
    const int64_t context_max =
        std::max(options.context + options.steps + 8, options.prefill_rows) / kKvPageTokens *
            kKvPageTokens +
        kKvPageTokens;
    state_ = *StatePool::create(
        config(), {2, static_cast<int32_t>(context_max / kKvPageTokens), context_max});
    forward_ = *Forward::create(model.weights, *backend.ops, pool, {rows_max(), 1, context_max});
  }

  /// The stream is read between groups of steps: a machine shared with others changes its speed within seconds.
  void decode(Stream& stream) {
    Sequence sequence = *state_->open();
    SLUICE_CHECK(state_->reserve(&sequence, options_.context + options_.steps + 1).ok());
    const std::vector<int32_t> ids = prompt_ids(options_.context, config().vocab_size);
    StepOutput output = prefill(*forward_, *state_, ids, {GdnForm::kStep, rows_max()}, &sequence);
    std::vector<double> times;
    uint64_t signature = 0xcbf29ce484222325u;
    for (int i = 0; i < options_.steps; ++i) {
      if (i % kStepsPerStreamRead == 0) stream.measure();
      const int32_t id = argmax(output.logits);
      signature = hash_id(signature, id);
      const double start = now();
      output = decode_step(*forward_, *state_, id, GdnForm::kStep, &sequence);
      times.push_back(now() - start);
    }
    state_->close(&sequence);
    const int64_t weights =
        layers_bytes(model_.weights) + static_cast<int64_t>(model_.weights.lm_head.num_bytes());
    const int64_t bytes = weights + state_traffic(config(), options_.context);
    const double step = median(times);
    const double gbs = static_cast<double>(bytes) / step * 1e-9;
    const double stream_gbs = stream.gbs_median();
    fmt::print(
        "decode   context {}: {:.2f} ms/token, {:.1f} tokens/s, {} MB a step, {:.2f} GB/s, {:.1f} "
        "% of the stream's {:.2f}, signature {:016x}\n",
        options_.context, step * 1e3, 1 / step, bytes / 1000000, gbs, 100 * gbs / stream_gbs,
        stream_gbs, signature);
    decode_tokens_per_s_ = 1 / step;
  }

  void prefill_rows(GdnForm form) {
    const std::vector<int32_t> ids = prompt_ids(options_.prefill_rows, config().vocab_size);
    std::vector<double> times;
    for (int i = 0; i < options_.prefill_rounds; ++i) {
      Sequence sequence = *state_->open();
      SLUICE_CHECK(state_->reserve(&sequence, options_.prefill_rows).ok());
      const double start = now();
      prefill(*forward_, *state_, ids, {form, rows_max()}, &sequence);
      times.push_back(now() - start);
      state_->close(&sequence);
    }
    const double rate = static_cast<double>(options_.prefill_rows) / median(times);
    // Two operations a weight and row in the layers; one row reaches the head.
    const double flops = 2.0 * static_cast<double>(options_.prefill_rows) * num_layer_weights();
    fmt::print(
        "prefill  {} rows, {} form: {:.1f} ms, {:.0f} tokens/s ({:.1f} x decode), linears {:.0f} "
        "GFLOP/s of the whole time\n",
        options_.prefill_rows, form == GdnForm::kStep ? "step" : "chunk", 1e3 * median(times), rate,
        rate / decode_tokens_per_s_, flops / median(times) * 1e-9);
  }

 private:
  const ModelConfig& config() const { return model_.weights.config; }
  int64_t rows_max() const {
    return (std::max<int64_t>(options_.prefill_rows, kGdnChunk) + kGdnChunk - 1) / kGdnChunk *
           kGdnChunk;
  }
  double num_layer_weights() const {
    double count = 0;
    for (const LayerWeights& layer : model_.weights.layers) {
      const auto width = layer.mlp.gate_proj.format == WeightFormat::kBf16 ? 2 : 1;
      count += static_cast<double>(linear_bytes(layer) / width);
    }
    return count;
  }

  const Options& options_;
  const LoadedModel& model_;
  ThreadPool& pool_;
  std::optional<StatePool> state_;
  std::optional<Forward> forward_;
  double decode_tokens_per_s_ = 1.0;
};

Status run(const Options& options) {
  SLUICE_ASSIGN_OR_RETURN(const Backend backend, choose_backend("cpu", options.isa));
  LoadOptions load_options;
  // Brings every page in, so that no step waits for the disk.
  load_options.verify_values = VerifyValues::kAll;
  SLUICE_ASSIGN_OR_RETURN(const LoadedModel model, load_model(options.model, load_options));
  ThreadPool pool(options.threads);
  Stream stream(pool, options.stream_mb);
  fmt::print("{}: {} backend, {} threads\n", options.model, backend.ops->name, pool.num_threads());
  StepBench bench(options, model, backend, pool);
  bench.decode(stream);
  bench.prefill_rows(GdnForm::kStep);
  bench.prefill_rows(GdnForm::kChunk);
  return Status();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options o;
  CLI::App app("Measures whole steps of a checkpoint (`sluice synth` writes one) on the CPU");
  app.add_option("--model", o.model, "folder of a checkpoint")->required();
  app.add_option("--isa", o.isa,
                 "scalar, avx2, avx512, avx512bf16, amx or ref; the best when left out");
  app.add_option("--threads", o.threads, "0: one a core");
  app.add_option("--context", o.context, "tokens before the first measured step");
  app.add_option("--steps", o.steps, "decode steps measured");
  app.add_option("--prefill-rows", o.prefill_rows, "rows of the measured prompt");
  app.add_option("--prefill-rounds", o.prefill_rounds, "prompts measured");
  app.add_option("--stream-mb", o.stream_mb, "size of the yardstick's buffer");
  CLI11_PARSE(app, argc, argv);
  const sluice::Status status = sluice::bench::run(o);
  if (!status.ok()) fmt::print(stderr, "bench_step: error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
