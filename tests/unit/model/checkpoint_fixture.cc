#include "checkpoint_fixture.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>

#include "base/weight_view.h"
#include "model/family.h"
#include "model/shard_set.h"

namespace sluice::test {
namespace {

RawCheckpoint read_back(WeightFormat linears) {
  TempDir dir;
  const Result<SynthSummary> summary =
      write_synthetic_checkpoint(small_spec(linears), dir.path(), nullptr);
  SLUICE_CHECK(summary.ok());
  RawCheckpoint raw;
  raw.config = *read_file(dir.path() / "config.json", 1 << 20);
  const Result<ShardSet> shards = ShardSet::open(dir.path());
  SLUICE_CHECK(shards.ok());
  for (const LocatedTensor& tensor : shards->tensors()) {
    const std::span<const std::byte> bytes = tensor.bytes();
    raw.tensors[tensor.entry->name] = {
        std::string(dtype_name(tensor.entry->dtype)), tensor.entry->shape,
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }
  return raw;
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = ::testing::TempDir() + "sluice_model_XXXXXX";
  SLUICE_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

SynthSpec small_spec(WeightFormat linears) {
  SynthSpec spec = *synth_spec("tiny", linears, 7);
  spec.config.hidden_size = 128;
  spec.config.intermediate_size = 256;
  spec.config.vocab_size = 64;
  spec.config.num_hidden_layers = 2;
  spec.config.layer_types = {LayerType::kLinearAttention, LayerType::kFullAttention};
  spec.config.num_attention_heads = 2;
  spec.num_threads = 1;
  return spec;
}

const RawCheckpoint& RawCheckpoint::bf16() {
  static const RawCheckpoint raw = read_back(WeightFormat::kBf16);
  return raw;
}

const RawCheckpoint& RawCheckpoint::fp8() {
  static const RawCheckpoint raw = read_back(WeightFormat::kFp8Block128);
  return raw;
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> shift));
  }
  return file + header + data;
}

std::string safetensors_bytes(const RawTensors& tensors) {
  std::string header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.empty() ? "{" : ",", name, tensor.dtype, shape_text(tensor.shape),
                          data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return safetensors_bytes(header, data);
}

void write_text(const Path& path, const std::string& text) {
  const Status status = write_file_atomic(path, text);
  SLUICE_CHECK(status.ok());
}

void write_single(const RawCheckpoint& checkpoint, const Path& dir) {
  write_text(dir / "config.json", checkpoint.config);
  write_text(dir / "model.safetensors", safetensors_bytes(checkpoint.tensors));
}

std::string u16_bytes(const std::vector<uint16_t>& values) {
  std::string bytes(values.size() * 2, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string f32_bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace sluice::test
