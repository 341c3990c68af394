#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include "base/weight_view.h"
#include "checkpoint_fixture.h"
#include "model/shard_set.h"

namespace sluice {
namespace {

using test::f32_bytes;
using test::RawCheckpoint;
using test::RawTensors;
using test::TempDir;
using test::u16_bytes;
using test::write_single;
using test::write_text;

const std::string kGdn = "model.language_model.layers.0.linear_attn.";
const std::string kAttention = "model.language_model.layers.1.self_attn.";

Result<LoadedModel> load(const RawCheckpoint& raw, const LoadOptions& options = {}) {
  const TempDir dir;  // the maps outlive the names
  write_single(raw, dir.path());
  return load_model(dir.path(), options);
}

std::string load_error(const RawCheckpoint& raw, const LoadOptions& options = {}) {
  const Result<LoadedModel> model = load(raw, options);
  return model.ok() ? "" : model.status().message();
}

bool contains(const std::vector<std::string>& texts, std::string_view part) {
  for (const std::string& text : texts) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Checkpoint, LoadsBf16) {
  const Result<LoadedModel> loaded = load(RawCheckpoint::bf16());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const ModelWeights& weights = loaded->weights;
  ASSERT_EQ(weights.layers.size(), 2u);
  const auto* gdn = std::get_if<GdnLayerWeights>(&weights.layers[0].mixer);
  ASSERT_NE(gdn, nullptr);
  EXPECT_EQ(gdn->in_proj_qkv.num_out, weights.config.conv_dim());
  EXPECT_EQ(gdn->in_proj_qkv.num_in, 128);
  EXPECT_EQ(gdn->in_proj_qkv.format, WeightFormat::kBf16);
  EXPECT_EQ(gdn->in_proj_qkv.scales, nullptr);
  EXPECT_EQ(gdn->conv1d.size(), static_cast<size_t>(weights.config.conv_dim() * 4));
  EXPECT_EQ(gdn->A_log.size(), 3u);
  ASSERT_NE(std::get_if<AttentionLayerWeights>(&weights.layers[1].mixer), nullptr);
  ASSERT_TRUE(weights.mtp.has_value());
  EXPECT_EQ(weights.mtp->fc.num_in, 256);
  EXPECT_EQ(weights.embed_tokens.num_rows, 64);
  EXPECT_NE(weights.lm_head.data, static_cast<const void*>(weights.embed_tokens.data));
  EXPECT_TRUE(loaded->diagnostics.warnings.empty());
  EXPECT_EQ(loaded->stop_token_ids, (std::vector<int32_t>{0}));
}

TEST(Checkpoint, BytesAreTheFiles) {
  const RawCheckpoint& raw = RawCheckpoint::bf16();
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok());
  const std::string& stored = raw.tensors.at(kAttention + "q_proj.weight").bytes;
  const auto& attention = std::get<AttentionLayerWeights>(loaded->weights.layers[1].mixer);
  ASSERT_EQ(attention.q_proj.num_bytes(), stored.size());
  EXPECT_EQ(std::memcmp(attention.q_proj.data, stored.data(), stored.size()), 0);
  int64_t total = 0;
  for (const auto& [name, tensor] : raw.tensors) total += static_cast<int64_t>(tensor.bytes.size());
  EXPECT_EQ(loaded->weight_bytes, total);
  EXPECT_EQ(loaded->tensors.size(), raw.tensors.size());
}

TEST(Checkpoint, LoadsFp8WithItsScales) {
  const RawCheckpoint& raw = RawCheckpoint::fp8();
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto& gdn = std::get<GdnLayerWeights>(loaded->weights.layers[0].mixer);
  EXPECT_EQ(gdn.in_proj_qkv.format, WeightFormat::kFp8Block128);
  EXPECT_EQ(gdn.in_proj_a.format, WeightFormat::kBf16);
  EXPECT_EQ(loaded->weights.lm_head.format, WeightFormat::kBf16);
  const std::string& scales = raw.tensors.at(kGdn + "in_proj_qkv.weight_scale_inv").bytes;
  bf16 last;
  std::memcpy(&last, scales.data() + scales.size() - 2, 2);
  EXPECT_EQ(gdn.in_proj_qkv.scales[scales.size() / 2 - 1], to_float(last));
  EXPECT_EQ(loaded->tensors.size(), raw.tensors.size());
}

TEST(Checkpoint, ViewsSurviveAMove) {
  Result<LoadedModel> loaded = load(RawCheckpoint::bf16());
  ASSERT_TRUE(loaded.ok());
  const float before = loaded->weights.norm[5];
  LoadedModel first = std::move(loaded).value();
  const LoadedModel second = std::move(first);
  EXPECT_EQ(second.weights.norm[5], before);
  EXPECT_EQ(second.weights.layers.size(), 2u);
}

TEST(Checkpoint, GatedNormIsRoundedAndALogIsNot) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  ASSERT_EQ(raw.tensors.at(kGdn + "A_log").dtype, "F32");
  raw.tensors[kGdn + "A_log"].bytes = f32_bytes({1.2345678f, 0.5f, 2.0f});
  raw.tensors[kGdn + "norm.weight"].bytes = f32_bytes(std::vector<float>(128, 1.2345678f));
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok());
  const auto& gdn = std::get<GdnLayerWeights>(loaded->weights.layers[0].mixer);
  EXPECT_EQ(gdn.A_log[0], 1.2345678f);
  EXPECT_EQ(gdn.norm[127], rb(1.2345678f));
  EXPECT_NE(gdn.norm[127], 1.2345678f);
}

TEST(Checkpoint, GdnVectorsMayBeBf16) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  raw.tensors[kGdn + "A_log"] = {"BF16", {3}, u16_bytes({0x3f80, 0x4000, 0x4040})};
  raw.tensors[kGdn + "norm.weight"] = {
      "BF16", {128}, u16_bytes(std::vector<uint16_t>(128, 0x3f80))};
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(std::get<GdnLayerWeights>(loaded->weights.layers[0].mixer).A_log[2], 3.0f);
}

TEST(Checkpoint, ScalesMayBeF32OrF16) {
  const std::string name = kAttention + "k_proj.weight_scale_inv";  // [2, 1]
  RawCheckpoint raw = RawCheckpoint::fp8();
  raw.tensors[name] = {"F32", {2, 1}, f32_bytes({0.1f, 0.25f})};
  Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(std::get<AttentionLayerWeights>(loaded->weights.layers[1].mixer).k_proj.scales[0],
            0.1f);
  raw.tensors[name] = {"F16", {2, 1}, u16_bytes({0x3c00, 0x3400})};
  loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(std::get<AttentionLayerWeights>(loaded->weights.layers[1].mixer).k_proj.scales[1],
            0.25f);
}

TEST(Checkpoint, AnyLinearMayBeFp8ByItsHeader) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  raw.tensors[kGdn + "in_proj_a.weight"] = {"F8_E4M3", {3, 128}, std::string(3 * 128, '\x38')};
  raw.tensors[kGdn + "in_proj_a.weight_scale_inv"] = {"BF16", {1, 1}, u16_bytes({0x3f80})};
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(std::get<GdnLayerWeights>(loaded->weights.layers[0].mixer).in_proj_a.format,
            WeightFormat::kFp8Block128);
}

TEST(Checkpoint, GateAndUpAreOfOneFormat) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  const std::string up = "model.language_model.layers.1.mlp.up_proj.weight";
  raw.tensors[up] = {"F8_E4M3", {256, 128}, std::string(256 * 128, '\x38')};
  raw.tensors[up + "_scale_inv"] = {"BF16", {2, 1}, u16_bytes({0x3f80, 0x3f80})};
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(loaded.status().message().find("layers.1.mlp.gate_proj"), std::string::npos)
      << loaded.status().message();
}

TEST(Checkpoint, TiedHeadAliasesTheEmbedding) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  const std::string untied = "\"tie_word_embeddings\": false";
  for (size_t place; (place = raw.config.find(untied)) != std::string::npos;) {
    raw.config.replace(place, untied.size(), "\"tie_word_embeddings\": true");
  }
  Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->weights.lm_head.data,
            static_cast<const void*>(loaded->weights.embed_tokens.data));
  EXPECT_TRUE(contains(loaded->diagnostics.warnings, "lm_head.weight is ignored"));
  raw.tensors.erase("lm_head.weight");
  loaded = load(raw);
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->diagnostics.warnings.empty());
}

TEST(Checkpoint, MtpMayBeAbsentOrLeftOut) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  LoadOptions options;
  options.load_mtp = false;
  Result<LoadedModel> loaded = load(raw, options);
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->weights.mtp.has_value());
  EXPECT_TRUE(loaded->diagnostics.notes.empty());
  std::erase_if(raw.tensors, [](const auto& item) { return item.first.starts_with("mtp."); });
  loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_FALSE(loaded->weights.mtp.has_value());
  EXPECT_TRUE(contains(loaded->diagnostics.notes, "no mtp.* tensors"));
}

TEST(Checkpoint, AnMtpHeadCountsThoughTheConfigOmitsIt) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  const std::string field = "\"mtp_num_hidden_layers\": 1,";
  const size_t place = raw.config.find(field);
  ASSERT_NE(place, std::string::npos);
  raw.config.erase(place, field.size());
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(loaded->weights.mtp.has_value());
  EXPECT_EQ(loaded->weights.config.mtp_num_hidden_layers, 1);
}

TEST(Checkpoint, EveryMissingTensorIsNamed) {
  for (const RawCheckpoint* raw : {&RawCheckpoint::bf16(), &RawCheckpoint::fp8()}) {
    for (const auto& [name, tensor] : raw->tensors) {
      RawCheckpoint damaged = *raw;
      damaged.tensors.erase(name);
      EXPECT_NE(load_error(damaged).find("tensor " + name + " is missing; expected"),
                std::string::npos)
          << name << ": " << load_error(damaged);
    }
  }
}

struct Damage {
  const char* what;
  bool is_fp8;
  std::function<void(RawTensors&)> apply;
  std::string message;
};

void set_u16(RawTensors& tensors, const std::string& name, size_t idx, uint16_t value) {
  std::memcpy(tensors.at(name).bytes.data() + idx * 2, &value, 2);
}

void rename_prefix(RawTensors& tensors, const std::string& from, const std::string& to) {
  RawTensors renamed;
  for (const auto& [name, tensor] : tensors) {
    renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = tensor;
  }
  tensors = renamed;
}

std::vector<Damage> damages() {
  const std::string k_proj = kAttention + "k_proj.weight";
  const std::string scale = k_proj + "_scale_inv";
  const std::string norm = "model.language_model.norm.weight";
  return {
      {"shape", false,
       [=](RawTensors& t) {
         t[k_proj].shape = {128, 256};
       },
       "tensor " + k_proj + " is BF16 [128, 256]; config.json implies BF16 or F8_E4M3 [256, 128]"},
      {"rank", false,
       [=](RawTensors& t) {
         t[norm].shape = {1, 128};
       },
       norm + " is BF16 [1, 128]; config.json implies BF16 [128]"},
      {"conv without its middle dimension", false,
       [](RawTensors& t) {
         t[kGdn + "conv1d.weight"].shape = {640, 4};
       },
       "conv1d.weight is BF16 [640, 4]; config.json implies BF16 [640, 1, 4]"},
      {"dtype F16 weight", false, [=](RawTensors& t) { t[k_proj].dtype = "F16"; },
       k_proj + " is F16 [256, 128]; config.json implies BF16 or F8_E4M3"},
      {"dtype F32 norm", false,
       [=](RawTensors& t) {
         t[norm] = {"F32", {128}, f32_bytes(std::vector<float>(128))};
       },
       norm + " is F32 [128]; config.json implies BF16 [128]"},
      {"dtype F16 A_log", false,
       [](RawTensors& t) {
         t[kGdn + "A_log"] = {"F16", {3}, u16_bytes({0, 0, 0})};
       },
       "A_log is F16 [3]; config.json implies BF16 or F32 [3]"},
      {"FP8 embedding", false,
       [](RawTensors& t) {
         auto& e = t["model.language_model.embed_tokens.weight"];
         e = {"F8_E4M3", {64, 128}, std::string(64 * 128, 0)};
       },
       "embed_tokens.weight is F8_E4M3 [64, 128]; config.json implies BF16"},
      {"FP8 without a scale", false,
       [=](RawTensors& t) {
         t[k_proj] = {"F8_E4M3", {256, 128}, std::string(256 * 128, 0)};
       },
       "tensor " + scale + " is missing; expected BF16 or F32 or F16 [2, 1]"},
      {"a scale beside BF16", false,
       [=](RawTensors& t) {
         t[scale] = {"BF16", {2, 1}, u16_bytes({0x3f80, 0x3f80})};
       },
       "tensor " + scale + " goes with a BF16 " + k_proj + "; expected F8_E4M3"},
      {"scale shape", true,
       [=](RawTensors& t) {
         t[scale].shape = {1, 2};
       },
       scale + " is BF16 [1, 2]; config.json implies BF16 or F32 or F16 [2, 1]"},
      {"scale dtype", true,
       [=](RawTensors& t) {
         t[scale] = {"U8", {2, 1}, "ab"};
       },
       scale + " is U8 [2, 1]; config.json implies"},
      {"NaN scale", true, [=](RawTensors& t) { set_u16(t, scale, 1, 0x7fc0); },
       "tensor " + scale + "[1, 0] is nan; expected finite values"},
      {"infinite scale", true, [=](RawTensors& t) { set_u16(t, scale, 0, 0x7f80); },
       "tensor " + scale + "[0, 0] is inf; expected finite values"},
      {"negative scale", true, [=](RawTensors& t) { set_u16(t, scale, 0, 0xbf80); },
       "tensor " + scale + "[0, 0] is -1; expected a scale that is not negative"},
      {"FP8 NaN 7f", true, [=](RawTensors& t) { t[k_proj].bytes[128 * 3 + 5] = '\x7f'; },
       "tensor " + k_proj + "[3, 5] is not a finite F8_E4M3; expected finite values"},
      {"FP8 NaN ff", true, [=](RawTensors& t) { t[k_proj].bytes.back() = '\xff'; },
       "tensor " + k_proj + "[255, 127] is not a finite F8_E4M3"},
      {"BF16 NaN in a matrix", false, [=](RawTensors& t) { set_u16(t, k_proj, 129, 0x7f81); },
       "tensor " + k_proj + "[1, 1] is not a finite BF16"},
      {"BF16 infinity in the embedding", false,
       [](RawTensors& t) { set_u16(t, "model.language_model.embed_tokens.weight", 0, 0xff80); },
       "embed_tokens.weight[0, 0] is not a finite BF16"},
      {"NaN norm", false, [=](RawTensors& t) { set_u16(t, norm, 7, 0x7fc0); },
       "tensor " + norm + "[7] is nan; expected finite values"},
      {"NaN conv", false, [](RawTensors& t) { set_u16(t, kGdn + "conv1d.weight", 6, 0x7fc0); },
       "conv1d.weight[1, 0, 2] is nan; expected finite values"},
      {"CausalLM prefix", false,
       [](RawTensors& t) { rename_prefix(t, "model.language_model.", "model."); },
       "tensor model.layers.0.input_layernorm.weight has the prefix model.layers. of a text-only "
       "export (CausalLM class); expected model.language_model.layers.N.*"},
      {"MLX prefix", false,
       [](RawTensors& t) { rename_prefix(t, "model.language_model.", "language_model.model."); },
       "has the prefix language_model.model. of an MLX export"},
      {"a bias", false,
       [](RawTensors& t) {
         t[kAttention + "q_proj.bias"] = {"BF16", {4}, u16_bytes({0, 0, 0, 0})};
       },
       "tensor " + kAttention +
           "q_proj.bias [4] is not part of the model that config.json describes"},
      {"a layer too many", false,
       [=](RawTensors& t) { t["model.language_model.layers.2.input_layernorm.weight"] = t[norm]; },
       "layers.2.input_layernorm.weight [128] is not part of the model"},
      {"an MTP layer too many", false,
       [=](RawTensors& t) { t["mtp.layers.1.input_layernorm.weight"] = t[norm]; },
       "tensor mtp.layers.1.input_layernorm.weight [128] is not part of the model"},
      {"MTP in part", false,
       [](RawTensors& t) {
         std::erase_if(t, [](const auto& i) {
           return i.first.starts_with("mtp.") && i.first != "mtp.norm.weight";
         });
       },
       "tensor mtp.fc.weight is missing; expected BF16 or F8_E4M3 [128, 256]"},
      {"the MTP of another shape", false,
       [=](RawTensors& t) {
         t["mtp.fc.weight"].shape = {256, 128};
       },
       "mtp.fc.weight is BF16 [256, 128]; config.json implies BF16 or F8_E4M3 [128, 256]"},
  };
}

TEST(Checkpoint, EveryDamageIsNamed) {
  for (const Damage& damage : damages()) {
    RawCheckpoint raw = damage.is_fp8 ? RawCheckpoint::fp8() : RawCheckpoint::bf16();
    damage.apply(raw.tensors);
    const std::string message = load_error(raw);
    EXPECT_NE(message.find(damage.message), std::string::npos)
        << damage.what << "\n  gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Checkpoint, Fp8RowsHaveWholeBlocks) {
  SynthSpec spec = test::small_spec(WeightFormat::kFp8Block128);
  spec.config.intermediate_size = 160;
  spec.overwrite = true;
  const test::TempDir dir;
  ASSERT_TRUE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
  const Result<LoadedModel> loaded = load_model(dir.path(), LoadOptions());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(loaded.status().message().find("mlp.down_proj.weight is F8_E4M3 [128, 160]") !=
              std::string::npos)
      << loaded.status().message();
}

TEST(Checkpoint, ScanOfBigMatricesIsAnOption) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  set_u16(raw.tensors, kAttention + "k_proj.weight", 0, 0x7fc0);
  LoadOptions options;
  options.verify_values = VerifyValues::kSmall;
  EXPECT_EQ(load_error(raw, options), "");
  options.verify_values = VerifyValues::kAll;
  EXPECT_NE(load_error(raw, options), "");
  options.verify_values = VerifyValues::kSmall;
  set_u16(raw.tensors, "model.language_model.norm.weight", 0, 0x7fc0);
  EXPECT_NE(load_error(raw, options), "");  // small tensors are always read
}

TEST(Checkpoint, ZeroScaleIsAWarning) {
  RawCheckpoint raw = RawCheckpoint::fp8();
  set_u16(raw.tensors, kAttention + "k_proj.weight_scale_inv", 0, 0);
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(contains(loaded->diagnostics.warnings, "1 block scales are zero"));
}

TEST(Checkpoint, VisionIsSkippedAndStrangersAreReported) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  raw.tensors["model.visual.patch_embed.proj.weight"] = {"I64", {1}, std::string(8, 'x')};
  for (int i = 0; i < 7; ++i) raw.tensors["stranger." + std::to_string(i)] = {"U8", {1}, "x"};
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(contains(loaded->diagnostics.notes, "skipped 1 vision tensors"));
  EXPECT_TRUE(contains(loaded->diagnostics.warnings,
                       "7 unexpected tensors were ignored: stranger.0, "
                       "stranger.1, stranger.2, stranger.3, stranger.4, ..."));
}

TEST(Checkpoint, BakedNormsAreWarnedAbout) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  for (auto& [name, tensor] : raw.tensors) {
    if (name.find("layernorm") == std::string::npos || name.starts_with("mtp.")) continue;
    tensor.bytes = u16_bytes(std::vector<uint16_t>(128, 0x3f80));
  }
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->diagnostics.warnings.size(), 1u);
  EXPECT_TRUE(
      contains(loaded->diagnostics.warnings, "the layer norms of the decoder average 1.00"));
}

TEST(Checkpoint, OddOffsetsAreCopiedRight) {
  RawCheckpoint raw = RawCheckpoint::bf16();
  raw.tensors["a_stranger"] = {"U8", {1}, "x"};  // first in the file: everything after it is odd
  const Result<LoadedModel> loaded = load(raw);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto& attention = std::get<AttentionLayerWeights>(loaded->weights.layers[1].mixer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(attention.q_proj.data) % 2, 0u);
  const std::string& stored = raw.tensors.at(kAttention + "q_proj.weight").bytes;
  EXPECT_EQ(std::memcmp(attention.q_proj.data, stored.data(), stored.size()), 0);
  EXPECT_TRUE(contains(loaded->diagnostics.notes, "starts at the odd byte"));
  set_u16(raw.tensors, kAttention + "q_proj.weight", 0, 0x7fc0);  // the scan sees the copy
  EXPECT_NE(load_error(raw).find("q_proj.weight[0, 0] is not a finite BF16"), std::string::npos);
}

TEST(Checkpoint, MissingConfig) {
  const TempDir dir;
  EXPECT_NE(load_model(dir.path(), {}).status().message().find("config.json: no such file"),
            std::string::npos);
}

// --- the index ---

void write_indexed(const RawCheckpoint& raw, const Path& dir, const std::string& index) {
  RawTensors text, mtp;
  for (const auto& [name, tensor] : raw.tensors)
    (name.starts_with("mtp.") ? mtp : text)[name] = tensor;
  write_text(dir / "config.json", raw.config);
  write_text(dir / "any name.bin", test::safetensors_bytes(text));
  write_text(dir / "mtp.safetensors", test::safetensors_bytes(mtp));
  write_text(dir / kIndexFileName, index);
}

std::string index_of(const RawTensors& tensors) {
  std::string map;
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", name,
                       name.starts_with("mtp.") ? "mtp.safetensors" : "any name.bin");
    total += static_cast<int64_t>(tensor.bytes.size());
  }
  return fmt::format("{{\"metadata\": {{\"total_size\": {}}}, \"weight_map\": {{{}}}}}", total,
                     map);
}

TEST(ShardIndex, IsFollowedWhateverTheShardsAreCalled) {
  const TempDir dir;
  const RawCheckpoint& raw = RawCheckpoint::bf16();
  write_indexed(raw, dir.path(), index_of(raw.tensors));
  write_text(dir.path() / kSingleFileName, "not looked at");
  const Result<LoadedModel> loaded = load_model(dir.path(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(loaded->diagnostics.warnings.empty());
}

TEST(ShardIndex, ShardsMayBeSymbolicLinks) {
  const TempDir dir;
  const RawCheckpoint& raw = RawCheckpoint::bf16();
  write_indexed(raw, dir.path(), index_of(raw.tensors));
  const Path snapshot = dir.path() / "snapshot";
  std::filesystem::create_directory(snapshot);
  for (const std::string_view name :
       {std::string_view("config.json"), std::string_view("any name.bin"),
        std::string_view("mtp.safetensors"), kIndexFileName}) {
    std::filesystem::create_symlink(dir.path() / name, snapshot / name);
  }
  EXPECT_TRUE(load_model(snapshot, {}).ok());
  std::filesystem::remove(dir.path() / "mtp.safetensors");
  EXPECT_NE(load_model(snapshot, {}).status().message().find("is the download complete?"),
            std::string::npos);
}

struct BadIndex {
  const char* what;
  std::function<std::string(std::string)> edit;
  const char* message;
};

std::function<std::string(std::string)> swap(std::string from, std::string to) {
  return [=](std::string text) { return text.replace(text.find(from), from.size(), to); };
}

TEST(ShardIndex, DamageIsNamed) {
  const BadIndex kBad[] = {
      {"traversal", swap("\"mtp.safetensors\"", "\"../mtp.safetensors\""),
       "tensor mtp.fc.weight is said to be in \"../mtp.safetensors\"; expected a plain file name"},
      {"absolute", swap("\"mtp.safetensors\"", "\"/etc/passwd\""),
       "is said to be in \"/etc/passwd\"; expected a plain file name"},
      {"backslash", swap("\"mtp.safetensors\"", "\"..\\\\x\""), "expected a plain file name"},
      {"nul", swap("\"mtp.safetensors\"", "\"mtp\\u0000\""), "expected a plain file name"},
      {"dots", swap("\"mtp.safetensors\"", "\"..\""), "expected a plain file name"},
      {"empty", swap("\"mtp.safetensors\"", "\"\""), "expected a plain file name"},
      {"not text", swap("\"mtp.safetensors\"", "3"),
       "is said to be in 3; expected a plain file name"},
      {"missing file", swap("\"mtp.safetensors\"", "\"gone.safetensors\""),
       "gone.safetensors: no such file; "},
      {"wrong file", swap("\"mtp.safetensors\"", "\"any name.bin\""),
       "has no tensor mtp.fc.weight, which"},
      {"unknown tensor", swap("\"mtp.fc.weight\"", "\"mtp.fc2.weight\""),
       "has no tensor mtp.fc2.weight, which"},
      {"twice", swap("\"mtp.fc.weight\"", "\"mtp.norm.weight\""),
       "the key \"mtp.norm.weight\" appears twice"},
      {"no map", swap("\"weight_map\"", "\"weights\""), "expected an object \"weight_map\""},
      {"no JSON", [](std::string) { return std::string("{"); }, "JSON"},
      {"empty map", [](std::string) { return std::string("{\"weight_map\": {}}"); },
       "with at least one tensor"},
  };
  const RawCheckpoint& raw = RawCheckpoint::bf16();
  for (const BadIndex& bad : kBad) {
    const TempDir dir;
    write_indexed(raw, dir.path(), bad.edit(index_of(raw.tensors)));
    const Result<LoadedModel> loaded = load_model(dir.path(), {});
    ASSERT_FALSE(loaded.ok()) << bad.what;
    EXPECT_NE(loaded.status().message().find(bad.message), std::string::npos)
        << bad.what << "\n  gave: " << loaded.status().message();
    EXPECT_EQ(loaded.status().message().find('\n'), std::string::npos);
  }
}

TEST(ShardIndex, ATensorInTwoShardsIsRefused) {
  const TempDir dir;
  const RawCheckpoint& raw = RawCheckpoint::bf16();
  write_indexed(raw, dir.path(), index_of(raw.tensors));
  RawTensors mtp;
  for (const auto& [name, tensor] : raw.tensors) {
    if (name.starts_with("mtp.") || name == "lm_head.weight") mtp[name] = tensor;
  }
  write_text(dir.path() / "mtp.safetensors", test::safetensors_bytes(mtp));
  EXPECT_NE(load_model(dir.path(), {})
                .status()
                .message()
                .find("mtp.safetensors: tensor lm_head.weight is also in"),
            std::string::npos);
}

TEST(ShardIndex, ContradictionsThatDoNotMatterAreWarnings) {
  const TempDir dir;
  RawCheckpoint raw = RawCheckpoint::bf16();
  std::string index = index_of(raw.tensors);
  index.replace(index.find("total_size\": "), 13, "total_size\": 1");
  raw.tensors["unlisted"] = {"U8", {1}, "x"};
  write_indexed(raw, dir.path(), index);
  const Result<LoadedModel> loaded = load_model(dir.path(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(contains(loaded->diagnostics.warnings, "total_size is 1"));
  EXPECT_TRUE(contains(loaded->diagnostics.warnings,
                       "1 tensors are not in the index and were ignored (unlisted, ...)"));
}

TEST(ShardIndex, EmptyDirectory) {
  const TempDir dir;
  EXPECT_NE(ShardSet::open(dir.path())
                .status()
                .message()
                .find("neither model.safetensors.index.json nor model.safetensors is there"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice
