#pragma once
// A tiny checkpoint in memory that tests damage in one place and write out.

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/synth.h"

namespace sluice::test {

/// A fresh directory, removed at the end.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const Path& path() const { return path_; }

 private:
  Path path_;
};

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

/// The smallest config of the family with both mixers: two layers, partial FP8 blocks in b and a.
SynthSpec small_spec(WeightFormat linears);

/// config.json and the tensors of a synthetic checkpoint.
struct RawCheckpoint {
  std::string config;
  RawTensors tensors;

  static const RawCheckpoint& bf16();
  static const RawCheckpoint& fp8();
};

/// A safetensors file of these tensors, in name order.
std::string safetensors_bytes(const RawTensors& tensors);
/// A file of a header text and data.
std::string safetensors_bytes(const std::string& header, const std::string& data);

void write_text(const Path& path, const std::string& text);
/// config.json and model.safetensors.
void write_single(const RawCheckpoint& checkpoint, const Path& dir);

/// Little-endian values as bytes.
std::string u16_bytes(const std::vector<uint16_t>& values);
std::string f32_bytes(const std::vector<float>& values);

}  // namespace sluice::test
