#include "model/synth.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "base/weight_view.h"
#include "checkpoint_fixture.h"
#include "model/checkpoint.h"
#include "model/shard_set.h"
#include "model/synth_values.h"

namespace sluice {
namespace {

using test::small_spec;
using test::TempDir;

// Every tensor's bytes by name.
std::map<std::string, std::string> tensors_of(const SynthSpec& spec) {
  const TempDir dir;
  const Result<SynthSummary> summary = write_synthetic_checkpoint(spec, dir.path(), nullptr);
  SLUICE_CHECK(summary.ok());
  std::map<std::string, std::string> tensors;
  const ShardSet shards = *ShardSet::open(dir.path());
  for (const LocatedTensor& tensor : shards.tensors()) {
    const auto bytes = tensor.bytes();
    tensors[tensor.entry->name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return tensors;
}

TEST(Synth, DependsOnSeedAndNameOnly) {
  for (const WeightFormat linears : {WeightFormat::kBf16, WeightFormat::kFp8Block128}) {
    SynthSpec spec = small_spec(linears);
    const auto tensors = tensors_of(spec);
    spec.num_threads = 3;
    spec.shard_bytes_max = 100000;
    EXPECT_EQ(tensors_of(spec), tensors);
    spec.seed += 1;
    EXPECT_NE(tensors_of(spec), tensors);
    EXPECT_NE(tensors.at("mtp.layers.0.mlp.up_proj.weight"),
              tensors.at("model.language_model.layers.1.mlp.up_proj.weight"));
  }
}

// A change of the generator changes every recorded number that came from a synthetic model: make it on purpose.
TEST(Synth, GeneratorIsFixed) {
  EXPECT_EQ(tensor_key(1, "lm_head.weight"), tensor_key(1, "lm_head.weight"));
  EXPECT_EQ(random_bits(0, 0), 0xe220a8397b1dcdafu);  // splitmix64's first output for seed 0
  EXPECT_EQ(random_bits(0, 1), 0x6e789e6aa1b965f4u);
}

TEST(Synth, NormalHasItsMoments) {
  double sum = 0.0, squares = 0.0;
  constexpr int kCount = 1 << 20;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(random_normal(123, i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.005);
  EXPECT_NEAR(squares / kCount, 1.0, 0.005);
}

TEST(Synth, QuantiserEqualsTheReference) {
  for (uint32_t bits = 0; bits <= 0x43e00000u; bits += 1009) {  // up to 448
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(quantise_e4m3(x), float_to_e4m3(x)) << x;
    ASSERT_EQ(quantise_e4m3(-x), float_to_e4m3(-x)) << -x;
  }
  for (int code = 0; code < 0x7e;
       ++code) {  // halfway between neighbours, and one ulp to either side
    const float middle = (e4m3_to_float(static_cast<uint8_t>(code)) +
                          e4m3_to_float(static_cast<uint8_t>(code + 1))) /
                         2.0f;
    for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
      ASSERT_EQ(quantise_e4m3(x), float_to_e4m3(x)) << x;
    }
  }
}

TEST(Synth, EveryFp8BlockReaches448) {
  const TempDir dir;
  ASSERT_TRUE(
      write_synthetic_checkpoint(small_spec(WeightFormat::kFp8Block128), dir.path(), nullptr).ok());
  const ShardSet shards = *ShardSet::open(dir.path());
  int num_blocks = 0;
  for (const LocatedTensor& tensor : shards.tensors()) {
    if (tensor.entry->dtype != Dtype::kF8E4M3) continue;
    const int64_t num_cols = tensor.entry->shape[1];
    for (int64_t row = 0; row < tensor.entry->shape[0]; row += 128) {
      for (int64_t col = 0; col < num_cols; col += 128) {
        uint8_t max_code = 0;
        for (int64_t i = 0; i < 128 * 128; ++i) {
          const int64_t at = (row + i / 128) * num_cols + col + i % 128;
          const auto code = std::to_integer<uint8_t>(tensor.bytes()[static_cast<size_t>(at)]);
          max_code = std::max(max_code, static_cast<uint8_t>(code & 0x7fu));
        }
        ASSERT_EQ(max_code, 0x7e) << tensor.entry->name << " block " << row << ", " << col;
        ++num_blocks;
      }
    }
  }
  EXPECT_GT(num_blocks, 20);
}

TEST(Synth, EverySmallFormatLoads) {
  for (const WeightFormat linears : {WeightFormat::kBf16, WeightFormat::kFp8Block128}) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      for (const bool has_mtp : {false, true}) {
        SynthSpec spec = small_spec(linears);
        spec.format.scales = spec.format.gdn_vectors = dtype;
        spec.format.has_mtp = has_mtp;
        const TempDir dir;
        ASSERT_TRUE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
        const Result<LoadedModel> loaded = load_model(dir.path(), {});
        ASSERT_TRUE(loaded.ok()) << loaded.status().message();
        EXPECT_EQ(loaded->weights.mtp.has_value(), has_mtp);
        EXPECT_TRUE(loaded->diagnostics.warnings.empty());
      }
    }
  }
}

TEST(Synth, PublishedShardNames) {
  const TempDir dir;
  ASSERT_TRUE(
      write_synthetic_checkpoint(small_spec(WeightFormat::kFp8Block128), dir.path(), nullptr).ok());
  for (const char* name : {"layers-0.safetensors", "layers-1.safetensors", "mtp.safetensors",
                           "outside.safetensors", "model.safetensors.index.json"}) {
    EXPECT_TRUE(std::filesystem::exists(dir.path() / name)) << name;
  }
}

TEST(Synth, RefusesToOverwriteUnlessTold) {
  const TempDir dir;
  SynthSpec spec = small_spec(WeightFormat::kFp8Block128);
  ASSERT_TRUE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
  const Status refused = write_synthetic_checkpoint(spec, dir.path(), nullptr).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("config.json: already there"), std::string::npos)
      << refused.message();
  spec = small_spec(WeightFormat::kBf16);
  spec.overwrite = true;
  ASSERT_TRUE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "layers-0.safetensors"));
  EXPECT_TRUE(load_model(dir.path(), {}).ok());
}

TEST(Synth, AFailureLeavesNothing) {
  const TempDir dir;
  // A directory where a shard should be: the last shards cannot be published.
  std::filesystem::create_directories(dir.path() / "outside.safetensors.part");
  SynthSpec spec = small_spec(WeightFormat::kFp8Block128);
  const Result<SynthSummary> failed = write_synthetic_checkpoint(spec, dir.path(), nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(
      failed.status().message().find("outside.safetensors.part: cannot create: Is a directory"),
      std::string::npos)
      << failed.status().message();
  int num_left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    num_left += entry.is_regular_file();
  EXPECT_EQ(num_left, 0);
}

// A limit on file sizes stands in for a full disk: the write fails in the middle of a shard.
TEST(Synth, AFailedWriteLeavesNothing) {
  const TempDir dir;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 100000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<SynthSummary> failed =
      write_synthetic_checkpoint(small_spec(WeightFormat::kBf16), dir.path(), nullptr);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("cannot write: File too large"), std::string::npos)
      << failed.status().message();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Synth, RefusesASpecOutsideTheFamily) {
  const TempDir dir;
  SynthSpec spec = small_spec(WeightFormat::kBf16);
  spec.config.num_key_value_heads = 3;
  EXPECT_FALSE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
  spec = small_spec(WeightFormat::kBf16);
  spec.format.scales = Dtype::kF16;
  EXPECT_FALSE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
}

TEST(Synth, ProgressEndsAtTheTotal) {
  const TempDir dir;
  int64_t last = 0, total = 0;
  SynthSpec spec = small_spec(WeightFormat::kBf16);
  const Result<SynthSummary> summary =
      write_synthetic_checkpoint(spec, dir.path(), [&](int64_t done, int64_t all) {
        EXPECT_GE(done, last);
        last = done;
        total = all;
      });
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, summary->num_bytes);
}

}  // namespace
}  // namespace sluice
