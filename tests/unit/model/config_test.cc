#include "model/config.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/weight_view.h"
#include "checkpoint_fixture.h"
#include "model/family.h"

namespace sluice {
namespace {

std::string published(std::string_view size = "27B") {
  return config_json(*family_config(size), family_format(size, WeightFormat::kBf16));
}

// Replaces the one occurrence of `from`.
std::string edited(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  SLUICE_CHECK(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

std::string parse_error(const std::string& json) {
  const Result<ModelConfig> config = parse_model_config(json, "config.json");
  return config.ok() ? "" : config.status().message();
}

TEST(Config, EverySizeReadsBack) {
  for (const std::string_view size : family_sizes()) {
    const Result<ModelConfig> config = parse_model_config(published(size), "config.json");
    ASSERT_TRUE(config.ok()) << size << ": " << config.status().message();
    const ModelConfig wanted = *family_config(size);
    EXPECT_EQ(config->hidden_size, wanted.hidden_size) << size;
    EXPECT_EQ(config->intermediate_size, wanted.intermediate_size) << size;
    EXPECT_EQ(config->layer_types, wanted.layer_types) << size;
    EXPECT_EQ(config->num_attention_heads, wanted.num_attention_heads) << size;
    EXPECT_EQ(config->num_key_value_heads, wanted.num_key_value_heads) << size;
    EXPECT_EQ(config->linear_num_value_heads, wanted.linear_num_value_heads) << size;
    EXPECT_EQ(config->tie_word_embeddings, wanted.tie_word_embeddings) << size;
    EXPECT_EQ(config->vocab_size, wanted.vocab_size) << size;
    EXPECT_EQ(config->rotary_dim, 64) << size;
    EXPECT_EQ(config->rope_theta, 1e7) << size;
    EXPECT_EQ(config->rms_norm_eps, 1e-6f) << size;
    EXPECT_EQ(config->eos_token_ids, wanted.eos_token_ids) << size;
  }
}

TEST(Config, DerivedWidthsOf27B) {
  const ModelConfig config = *family_config("27B");
  EXPECT_EQ(config.num_full_attention_layers(), 16);
  EXPECT_EQ(config.num_linear_attention_layers(), 48);
  EXPECT_EQ(config.attention_dim(), 6144);
  EXPECT_EQ(config.key_value_dim(), 1024);
  EXPECT_EQ(config.conv_dim(), 10240);
  EXPECT_EQ(config.linear_value_dim(), 6144);
}

TEST(Config, FlatTextConfigIsAccepted) {
  const JsonValue root = *parse_json(published());
  const Result<ModelConfig> config =
      parse_model_config(dump_json(*root.find("text_config")), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->hidden_size, 5120);
}

TEST(Config, WhatGenerationsAddIsAccepted) {
  const std::string extra =
      R"("mlp_only_layers": [], "output_gate_type": "swish", "bos_token_id": 248044, "pad_token_id": null, )"
      R"("partial_rotary_factor": 0.25, "full_attention_interval": 4, "unknown_key": {"a": [1]}, )";
  EXPECT_EQ(parse_error(edited(published(), "\"attention_bias\"", extra + "\"attention_bias\"")),
            "");
}

TEST(Config, LayerTypesMayComeFromTheInterval) {
  std::string json = published();
  const size_t begin = json.find("\"layer_types\"");
  json = json.replace(begin, json.find(']', begin) - begin + 1, "\"full_attention_interval\": 4");
  const Result<ModelConfig> config = parse_model_config(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layer_types, family_config("27B")->layer_types);
}

struct BadConfig {
  const char* from;
  const char* to;
  const char* message;
};
constexpr BadConfig kBadConfigs[] = {
    {"\"qwen3_5\"", "\"qwen3_next\"",
     "model_type is \"qwen3_next\"; this engine runs the dense family"},
    {"\"qwen3_5_text\"", "\"qwen3_5_moe_text\"", "text_config.model_type is \"qwen3_5_moe_text\""},
    {"\"silu\"", "\"gelu\"", "text_config.hidden_act is \"gelu\"; this family has \"silu\""},
    {"\"hidden_act\": \"silu\", ", "", "text_config.hidden_act is missing; expected \"silu\""},
    {"\"dtype\"", "\"output_gate_type\": \"sigmoid\", \"dtype\"",
     "output_gate_type is \"sigmoid\"; this family has \"swish\" or \"silu\""},
    {"\"attention_bias\": false", "\"attention_bias\": true",
     "attention_bias is true; this family has false"},
    {"\"attn_output_gate\": true", "\"attn_output_gate\": false",
     "attn_output_gate is false; this family has true"},
    {"\"dtype\"", "\"mlp_only_layers\": [3], \"dtype\"",
     "mlp_only_layers is [3]; this family has []"},
    {"\"mtp_use_dedicated_embeddings\": false", "\"mtp_use_dedicated_embeddings\": true",
     "mtp_use_dedicated_embeddings is true"},
    {"\"mtp_num_hidden_layers\": 1", "\"mtp_num_hidden_layers\": 2",
     "mtp_num_hidden_layers is 2; expected an integer from 0 to 1"},
    {"\"default\"", "\"yarn\"",
     "rope_parameters.rope_type is \"yarn\"; only \"default\" is supported"},
    {"\"rope_parameters\"", "\"rope_scaling\"",
     "text_config.rope_parameters is missing; expected an object"},
    {"0.25", "0.3", "partial_rotary_factor is 0.3; expected a fraction of head_dim"},
    {"[11, 11, 10]", "[11, 11, 11]", "mrope_section adds up to 33; the rotary width implies 32"},
    {"\"linear_attention\", ", "", "layer_types has 63 entries; num_hidden_layers is 64"},
    {"\"linear_attention\"", "\"sliding_attention\"",
     "layer_types[0] is \"sliding_attention\"; this family has"},
    {"\"num_hidden_layers\": 64", "\"num_hidden_layers\": 63",
     "layer_types has 64 entries; num_hidden_layers is 63"},
    {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 5",
     "num_attention_heads is 24; expected a multiple of num_key_value_heads, which is 5"},
    {"\"linear_num_key_heads\": 16", "\"linear_num_key_heads\": 32",
     "linear_num_value_heads is 48; expected a multiple of linear_num_key_heads, which is 32"},
    {"\"head_dim\": 256", "\"head_dim\": 128", "head_dim is 128; this family has 256"},
    {"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3",
     "linear_conv_kernel_dim is 3; this family has 4"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 0",
     "hidden_size is 0; expected an integer from 1 to 1048576"},
    {"\"hidden_size\": 5120", "\"hidden_size\": -5120",
     "hidden_size is -5120; expected an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 99999999999999999999",
     "hidden_size is 99999999999999999999; expected an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 5120.0",
     "hidden_size is 5120.0; expected an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": \"5120\"",
     "hidden_size is \"5120\"; expected an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": null", "hidden_size is null; expected an integer"},
    {"\"hidden_size\": 5120, ", "", "text_config.hidden_size is missing; expected an integer"},
    {"\"vocab_size\": 248320", "\"vocab_size\": 9223372036854775807",
     "vocab_size is 9223372036854775807; expected"},
    {"\"vocab_size\": 248320", "\"vocab_size\": 1000",
     "eos_token_id is 248044; expected an id or at most 64 ids from 0 to 999"},
    {"1e-06", "-1e-06", "rms_norm_eps is -1e-06; expected a number from"},
    {"10000000.0", "1e400", "rope_theta is 1e400; expected a number from"},
    {"\"tie_word_embeddings\": false, \"vocab", "\"tie_word_embeddings\": true, \"vocab",
     "tie_word_embeddings is false, but text_config.tie_word_embeddings is true"},
    {"\"text_config\": {", "\"text_config\": 3, \"x\": {", "text_config is 3; expected an object"},
    {"\"model_type\"", "\"quantization_config\": {\"quant_method\": \"awq\"}, \"model_type\"",
     "quantization_config.quant_method is \"awq\"; block FP8 of this family has \"fp8\""},
    {"\"model_type\"",
     "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
     "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [64, 64]}, \"model_type\"",
     "weight_block_size is [64,64]; block FP8 of this family has [128,128]"},
    {"{", "[{", "JSON"},
};

TEST(Config, RefusesWhatTheFamilyDoesNotHave) {
  for (const BadConfig& bad : kBadConfigs) {
    const std::string message = parse_error(edited(published(), bad.from, bad.to));
    EXPECT_NE(message.find(bad.message), std::string::npos)
        << bad.from << " -> " << bad.to << "\n  gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
  }
}

TEST(Config, GenerationDefaultsAndFields) {
  const GenerationConfig absent = *load_generation_config("no/such/directory");
  EXPECT_EQ(absent.top_k, 20);
  EXPECT_FLOAT_EQ(absent.top_p, 0.95f);
  EXPECT_FLOAT_EQ(absent.temperature, 1.0f);
  const GenerationConfig read = *parse_generation_config(
      R"({"eos_token_id": [5, 3], "do_sample": false, "temperature": 0.6, "top_k": 40, "top_p": 0.8})",
      "generation_config.json");
  EXPECT_EQ(read.eos_token_ids, (std::vector<int32_t>{5, 3}));
  EXPECT_FALSE(read.do_sample);
  EXPECT_FLOAT_EQ(read.temperature, 0.6f);
  EXPECT_EQ(read.top_k, 40);
  EXPECT_FLOAT_EQ(read.top_p, 0.8f);
}

TEST(Config, GenerationRefusesNonsense) {
  constexpr const char* kBad[] = {R"({"temperature": -1})",      R"({"top_p": 1.5})",
                                  R"({"top_k": "many"})",        R"({"eos_token_id": -1})",
                                  R"({"eos_token_id": "</s>"})", R"([1])",
                                  R"({"top_p": NaN})",           ""};
  for (const char* json : kBad) {
    EXPECT_FALSE(parse_generation_config(json, "generation_config.json").ok()) << json;
  }
}

TEST(Config, StopIdsJoinBothFilesAndTheFamily) {
  ModelConfig config = *family_config("9B");
  EXPECT_EQ(*stop_token_ids(config, {}), (std::vector<int32_t>{248044, 248046}));
  GenerationConfig generation;
  generation.eos_token_ids = {7, 248044};
  EXPECT_EQ(*stop_token_ids(config, generation), (std::vector<int32_t>{7, 248044, 248046}));
  config = *family_config("tiny");
  EXPECT_EQ(*stop_token_ids(config, {}), (std::vector<int32_t>{0}));
  generation.eos_token_ids = {512};
  const Result<std::vector<int32_t>> outside = stop_token_ids(config, generation);
  ASSERT_FALSE(outside.ok());
  EXPECT_NE(
      outside.status().message().find("eos_token_id 512 is outside the vocabulary of 512 ids"),
      std::string::npos);
}

}  // namespace
}  // namespace sluice
