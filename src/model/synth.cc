#include "model/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <mutex>
#include <system_error>

#include "base/threads.h"
#include "model/family.h"
#include "model/shard_set.h"
#include "model/synth_plan.h"
#include "model/synth_values.h"

namespace sluice {
namespace {

constexpr std::string_view kPartSuffix = ".part";

/// A shard under a temporary name; unless published it is removed.
class ShardWriter {
 public:
  ShardWriter() = default;
  ShardWriter(ShardWriter&& other) noexcept
      : path_(std::move(other.path_)),
        part_(std::move(other.part_)),
        fd_(std::exchange(other.fd_, -1)) {}
  ~ShardWriter() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(part_.c_str());
  }

  static Result<ShardWriter> create(const Path& path) {
    ShardWriter writer;
    writer.path_ = path;
    writer.part_ = path;
    writer.part_ += kPartSuffix;
    writer.fd_ = ::open(writer.part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (writer.fd_ < 0) return writer.failure("create");
    return writer;
  }

  Status write(int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failure("write");
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += n;
    }
    return Status();
  }

  Status publish() {
    // Some file systems report a full disk only here.
    if (::close(std::exchange(fd_, -1)) != 0 || ::rename(part_.c_str(), path_.c_str()) != 0) {
      Status status = failure("finish");
      ::unlink(part_.c_str());
      return status;
    }
    return Status();
  }

 private:
  Status failure(const char* what) const {
    return io_error("{}: cannot {}: {}", part_.string(), what, std::strerror(errno));
  }

  Path path_;
  Path part_;
  int fd_ = -1;
};

struct Task {
  size_t tensor_idx;
  int64_t first;  // element
  int64_t count;
};

struct Scratch {
  std::vector<bf16> values;
  std::vector<float> floats;
  std::vector<uint8_t> codes;
  std::vector<bf16> scales;
};

template <typename T>
std::span<const std::byte> as_bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

bool writes_residual(std::string_view name) {
  return name.ends_with(".out_proj.weight") || name.ends_with(".o_proj.weight") ||
         name.ends_with(".down_proj.weight");
}

struct Normal {
  float mean;
  float sigma;
};

// Linears keep the variance of their input. The 2 L branches add up to a residual of about 1 (a branch's own input has
// an rms of some 0.4). Heads are small, so that logits spread by 2; a tied head would otherwise repeat its input.
Normal distribution(const TensorSpec& tensor, int64_t num_layers) {
  const auto inverse_root = [](int64_t n) { return 1.0f / std::sqrt(static_cast<float>(n)); };
  switch (tensor.role) {
    case TensorRole::kEmbedding:
    case TensorRole::kLmHead:
      return {0.0f, 2.0f * inverse_root(tensor.shape[1])};
    case TensorRole::kLinear:
    case TensorRole::kPlainLinear: {
      const float sigma = inverse_root(tensor.shape[1]);
      const float branch = 2.5f * inverse_root(2 * num_layers);
      return {0.0f, writes_residual(tensor.name) ? sigma * branch : sigma};
    }
    case TensorRole::kZeroCentredNorm:
      return {0.0f, 0.05f};
    case TensorRole::kGatedNorm:
      return {1.0f, 0.05f};
    case TensorRole::kConv1d:
      return {0.0f, 0.5f};
    case TensorRole::kScale:
    case TensorRole::kALog:
    case TensorRole::kDtBias:
      break;
  }
  return {0.0f, 0.0f};
}

// The published initialisation: A in [1, 16), a step dt log-uniform in [0.001, 0.1] through the inverse of softplus.
float small_value(const TensorSpec& tensor, uint64_t key, uint64_t idx, const Normal& normal) {
  const float uniform = random_uniform(key, idx);
  if (tensor.role == TensorRole::kALog) return std::log(1.0f + 15.0f * uniform);
  if (tensor.role == TensorRole::kDtBias) {
    const float dt = 0.001f * std::exp(uniform * std::log(100.0f));
    return dt + std::log(-std::expm1(-dt));
  }
  return normal.mean + normal.sigma * random_normal(key, idx);
}

class Synthesiser {
 public:
  Synthesiser(const SynthSpec& spec, const SynthPlan& plan, const SynthProgress& progress)
      : spec_(spec), plan_(plan), progress_(progress), pool_(spec.num_threads) {}

  Status create_shards(const Path& dir) {
    for (const PlannedShard& shard : plan_.shards) {
      SLUICE_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::create(dir / shard.file_name));
      writers_.push_back(std::move(writer));
      SLUICE_RETURN_IF_ERROR(writers_.back().write(0, std::as_bytes(std::span(shard.header))));
    }
    return Status();
  }

  Status fill() {
    const std::vector<Task> tasks = list_tasks();
    std::vector<Scratch> scratch(static_cast<size_t>(pool_.num_threads()));
    pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task_idx, int worker) {
      if (failed_.load(std::memory_order_relaxed)) return;
      const Task& task = tasks[static_cast<size_t>(task_idx)];
      note(make(task, scratch[static_cast<size_t>(worker)]));
      if (worker == 0 && progress_) progress_(bytes_done_.load(), plan_.tensor_bytes);
    });
    if (status_.ok() && progress_) progress_(plan_.tensor_bytes, plan_.tensor_bytes);
    return status_;
  }

  Status publish() {
    for (ShardWriter& writer : writers_) SLUICE_RETURN_IF_ERROR(writer.publish());
    return Status();
  }

 private:
  static constexpr int64_t kChunk = int64_t{1} << 20;

  std::vector<Task> list_tasks() const {
    std::vector<Task> tasks;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorSpec& tensor = plan_.tensors[i].spec;
      if (tensor.role == TensorRole::kScale) continue;  // written with its weight
      const int64_t total = tensor.num_elements();
      const int64_t step =
          tensor.dtype == Dtype::kF8E4M3 ? kFp8BlockSize * tensor.shape[1] : kChunk;
      for (int64_t first = 0; first < total; first += step) {
        tasks.push_back({i, first, std::min(step, total - first)});
      }
    }
    return tasks;
  }

  void note(Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    failed_.store(true);
  }

  Status write(const PlannedTensor& tensor, int64_t byte_offset, std::span<const std::byte> bytes) {
    bytes_done_.fetch_add(static_cast<int64_t>(bytes.size()));
    return writers_[tensor.shard_idx].write(tensor.offset + byte_offset, bytes);
  }

  Status make(const Task& task, Scratch& scratch) {
    const PlannedTensor& tensor = plan_.tensors[task.tensor_idx];
    const uint64_t key = tensor_key(spec_.seed, tensor.spec.name);
    const Normal normal = distribution(tensor.spec, spec_.config.num_hidden_layers);
    if (tensor.spec.dtype == Dtype::kF8E4M3) return make_band(tensor, task, key, normal, scratch);
    const bool is_plain = tensor.spec.role != TensorRole::kALog &&
                          tensor.spec.role != TensorRole::kDtBias &&
                          tensor.spec.dtype == Dtype::kBf16;
    if (!is_plain) return make_small(tensor, task, key, normal, scratch);
    scratch.values.resize(static_cast<size_t>(task.count));
    fill_normal(key, static_cast<uint64_t>(task.first), normal.mean, normal.sigma, scratch.values);
    return write(tensor, task.first * 2, as_bytes(scratch.values));
  }

  Status make_band(const PlannedTensor& tensor, const Task& task, uint64_t key,
                   const Normal& normal, Scratch& scratch) {
    const int64_t num_cols = tensor.spec.shape[1];
    const auto num_blocks = static_cast<size_t>((num_cols + kFp8BlockSize - 1) / kFp8BlockSize);
    scratch.floats.resize(static_cast<size_t>(task.count));
    scratch.codes.resize(static_cast<size_t>(task.count));
    scratch.scales.resize(num_blocks);
    fill_fp8_band(key, static_cast<uint64_t>(task.first), task.count / num_cols, num_cols,
                  normal.sigma, scratch.floats, scratch.codes, scratch.scales);
    SLUICE_RETURN_IF_ERROR(write(tensor, task.first, as_bytes(scratch.codes)));
    const int64_t band = task.first / (kFp8BlockSize * num_cols);
    return write_scales(plan_.tensors[tensor.scale_idx], band * static_cast<int64_t>(num_blocks),
                        scratch);
  }

  Status write_scales(const PlannedTensor& scale, int64_t first, Scratch& scratch) {
    if (scale.spec.dtype == Dtype::kBf16) return write(scale, first * 2, as_bytes(scratch.scales));
    scratch.floats.clear();
    for (const bf16 value : scratch.scales) scratch.floats.push_back(to_float(value));
    return write(scale, first * 4, as_bytes(scratch.floats));
  }

  Status make_small(const PlannedTensor& tensor, const Task& task, uint64_t key,
                    const Normal& normal, Scratch& scratch) {
    scratch.floats.clear();
    for (int64_t i = task.first; i < task.first + task.count; ++i) {
      scratch.floats.push_back(small_value(tensor.spec, key, static_cast<uint64_t>(i), normal));
    }
    if (tensor.spec.dtype == Dtype::kF32)
      return write(tensor, task.first * 4, as_bytes(scratch.floats));
    scratch.values.clear();
    for (const float value : scratch.floats) scratch.values.push_back(to_bf16(value));
    return write(tensor, task.first * 2, as_bytes(scratch.values));
  }

  const SynthSpec& spec_;
  const SynthPlan& plan_;
  const SynthProgress& progress_;
  ThreadPool pool_;
  std::vector<ShardWriter> writers_;
  std::atomic<int64_t> bytes_done_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status status_;
};

bool is_checkpoint_file(const Path& path) {
  return path.extension() == ".safetensors" || path.filename() == kIndexFileName ||
         path.filename() == "config.json" || path.filename() == "generation_config.json";
}

Result<std::vector<Path>> existing_files(const Path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return io_error("{}: cannot create the directory: {}", dir.string(), error.message());
  std::vector<Path> files;
  std::filesystem::directory_iterator entry(dir, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (is_checkpoint_file(entry->path())) files.push_back(entry->path());
  }
  if (error) return io_error("{}: cannot list: {}", dir.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

Status check_space(const Path& dir, int64_t num_bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(dir, error);
  if (error || space.available >= static_cast<uintmax_t>(num_bytes)) return Status();
  return io_error("{}: the checkpoint takes {} bytes, the file system has {} free", dir.string(),
                  num_bytes, space.available);
}

Result<std::string> generation_json(const ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, stop_token_ids(config, {}));
  return fmt::format(
      "{{\"do_sample\": true, \"eos_token_id\": [{}], \"temperature\": 1.0, \"top_k\": 20, "
      "\"top_p\": 0.95}}\n",
      fmt::join(ids, ", "));
}

Status write_texts(const SynthSpec& spec, const SynthPlan& plan, const Path& dir) {
  SLUICE_RETURN_IF_ERROR(
      write_file_atomic(dir / "config.json", config_json(spec.config, spec.format)));
  SLUICE_ASSIGN_OR_RETURN(const std::string generation, generation_json(spec.config));
  SLUICE_RETURN_IF_ERROR(write_file_atomic(dir / "generation_config.json", generation));
  return write_file_atomic(dir / kIndexFileName, index_json(plan));
}

// What is written must read back; a hand-made spec may ask for something the family does not have.
Status check_spec(const SynthSpec& spec) {
  const auto is_one_of = [](Dtype dtype, Dtype other) {
    return dtype == Dtype::kBf16 || dtype == other;
  };
  if (!is_one_of(spec.format.scales, Dtype::kF32) ||
      !is_one_of(spec.format.gdn_vectors, Dtype::kF32)) {
    return invalid_argument("synthetic scales are {} and GDN vectors {}; expected BF16 or F32",
                            dtype_name(spec.format.scales), dtype_name(spec.format.gdn_vectors));
  }
  const Result<ModelConfig> parsed =
      parse_model_config(config_json(spec.config, spec.format), "the synthetic config.json");
  return parsed.status();
}

void remove_all(const std::vector<Path>& files) {
  for (const Path& file : files) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
}

}  // namespace

Result<SynthSpec> synth_spec(std::string_view size, WeightFormat linears, uint64_t seed) {
  SynthSpec spec;
  SLUICE_ASSIGN_OR_RETURN(spec.config, family_config(size));
  spec.format = family_format(size, linears);
  spec.seed = seed;
  return spec;
}

Result<SynthSummary> write_synthetic_checkpoint(const SynthSpec& spec, const Path& dir,
                                                const SynthProgress& progress) {
  SLUICE_RETURN_IF_ERROR(check_spec(spec));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Path> old_files, existing_files(dir));
  if (!old_files.empty() && !spec.overwrite) {
    return invalid_argument("{}: already there; choose an empty directory or pass --force",
                            old_files[0].string());
  }
  const SynthPlan plan = plan_synth(spec);
  SLUICE_RETURN_IF_ERROR(check_space(dir, plan.file_bytes));
  Synthesiser synthesiser(spec, plan, progress);
  SLUICE_RETURN_IF_ERROR(synthesiser.create_shards(dir));
  SLUICE_RETURN_IF_ERROR(synthesiser.fill());
  remove_all(old_files);
  Status status = synthesiser.publish();
  if (status.ok()) status = write_texts(spec, plan, dir);
  if (!status.ok()) {
    for (const PlannedShard& shard : plan.shards) remove_all({dir / shard.file_name});
    return status;
  }
  return SynthSummary{static_cast<int64_t>(plan.tensors.size()),
                      static_cast<int64_t>(plan.shards.size()), plan.tensor_bytes};
}

}  // namespace sluice
