#include "tests/ops/golden_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/file.h"
#include "tests/ops/golden_inputs.h"

namespace sluice::golden {
namespace {

constexpr size_t kManifestBytesMax = size_t{1} << 20;

Path golden_path(std::string_view file) {
  return Path(SLUICE_SOURCE_DIR) / "tests" / "golden" / "ops" / file;
}

/// A golden set that is not as the test expects is a bug of the repository, not of an op.
[[noreturn]] void stop(std::string_view what) {
  check_failed(__FILE__, __LINE__, what);
}

template <typename T>
T value_or_stop(Result<T> result) {
  if (!result.ok()) stop(result.status().message());
  return std::move(result).value();
}

const JsonValue& member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr) stop(fmt::format("tests/golden/ops/manifest.json has no {}", key));
  return *value;
}

std::vector<int64_t> int_list(const JsonValue& list) {
  std::vector<int64_t> out;
  for (const JsonValue& item : list.items()) out.push_back(value_or_stop(item.as_int64()));
  return out;
}

struct Generated {
  Recipe recipe;
  std::vector<float> values;
};

Generated make_input(const JsonValue& manifest, std::string_view name) {
  const JsonValue& entry = member(member(manifest, "inputs"), name);
  Generated out;
  out.recipe.name = name;
  out.recipe.shape = int_list(member(entry, "shape"));
  out.recipe.kind = member(entry, "kind").text();
  out.recipe.scale = static_cast<float>(member(entry, "scale").as_double());
  out.recipe.shift = value_or_stop(member(entry, "shift").as_int64());
  out.values = generate(out.recipe);
  return out;
}

std::string dtype_of(const JsonValue& manifest, std::string_view name) {
  return member(member(member(manifest, "inputs"), name), "dtype").text();
}

template <typename Bits>
void verify(const JsonValue& manifest, std::string_view name, const Bits* bits, size_t count) {
  const std::string& expected = member(member(member(manifest, "inputs"), name), "checksum").text();
  const std::string found = fmt::format("{:016x}", checksum(bits, count));
  if (found != expected) {
    stop(fmt::format("input {} is {} here, {} where it was recorded", name, found, expected));
  }
}

template <typename T, typename Convert>
Matrix<T> shaped(const Generated& input, Convert convert) {
  const int64_t cols = input.recipe.num_cols();
  Matrix<T> out(input.recipe.num_elements() / cols, cols);
  std::transform(input.values.begin(), input.values.end(), out.values.begin(), convert);
  return out;
}

}  // namespace

GoldenSet::GoldenSet(JsonValue manifest, SafetensorsFile file)
    : manifest_(std::move(manifest)), file_(std::make_unique<SafetensorsFile>(std::move(file))) {}

const GoldenSet& GoldenSet::get() {
  static const GoldenSet set(value_or_stop(parse_json(value_or_stop(
                                 read_file(golden_path("manifest.json"), kManifestBytesMax)))),
                             value_or_stop(SafetensorsFile::open(golden_path("ops.safetensors"))));
  return set;
}

bool GoldenSet::has(std::string_view result) const {
  return file_->find(result) != nullptr;
}

Recorded GoldenSet::result(std::string_view name) const {
  const TensorEntry* entry = file_->find(name);
  if (entry == nullptr) stop(fmt::format("tests/golden/ops/ops.safetensors has no {}", name));
  const std::byte* bytes = file_->bytes(*entry).data();
  const int64_t cols = entry->shape.back();
  Recorded out{std::string(name),
               Matrix<float>(entry->num_elements() / cols, cols),
               entry->dtype == Dtype::kBf16,
               {}};
  for (size_t i = 0; i < out.matrix.values.size(); ++i) {
    if (entry->dtype == Dtype::kBf16) {
      bf16 v;
      std::memcpy(&v, bytes + i * sizeof v, sizeof v);
      out.matrix.values[i] = to_float(v);
    } else if (entry->dtype == Dtype::kF32) {
      std::memcpy(&out.matrix.values[i], bytes + i * sizeof(float), sizeof(float));
    } else {
      int32_t v;
      std::memcpy(&v, bytes + i * sizeof v, sizeof v);
      out.matrix.values[i] = static_cast<float>(v);
    }
  }
  if (const JsonValue* rows = member(manifest_, "rows").find(name); rows != nullptr) {
    out.rows = int_list(*rows);
  } else {
    out.rows.resize(static_cast<size_t>(out.matrix.num_rows));
    std::iota(out.rows.begin(), out.rows.end(), int64_t{0});
  }
  return out;
}

Matrix<bf16> GoldenSet::bf16s(std::string_view name) const {
  SLUICE_CHECK(dtype_of(manifest_, name) == "bf16");
  Matrix<bf16> out = shaped<bf16>(make_input(manifest_, name), to_bf16);
  verify(manifest_, name, reinterpret_cast<const uint16_t*>(out.values.data()), out.values.size());
  return out;
}

Matrix<uint8_t> GoldenSet::e4m3s(std::string_view name) const {
  SLUICE_CHECK(dtype_of(manifest_, name) == "e4m3");
  Matrix<uint8_t> out = shaped<uint8_t>(make_input(manifest_, name), float_to_e4m3);
  verify(manifest_, name, out.values.data(), out.values.size());
  return out;
}

Matrix<float> GoldenSet::floats(std::string_view name) const {
  if (dtype_of(manifest_, name) == "bf16") return widen(bf16s(name));
  SLUICE_CHECK(dtype_of(manifest_, name) == "f32");
  Matrix<float> out = shaped<float>(make_input(manifest_, name), [](float x) { return x; });
  verify(manifest_, name, reinterpret_cast<const uint32_t*>(out.values.data()), out.values.size());
  return out;
}

std::vector<int32_t> GoldenSet::ids(std::string_view name) const {
  const Matrix<int32_t> out =
      shaped<int32_t>(make_input(manifest_, name), [](float x) { return static_cast<int32_t>(x); });
  verify(manifest_, name, reinterpret_cast<const uint32_t*>(out.values.data()), out.values.size());
  return out.values;
}

Matrix<bf16> narrow(const Matrix<float>& m) {
  Matrix<bf16> out(m.num_rows, m.num_cols);
  std::transform(m.values.begin(), m.values.end(), out.values.begin(), to_bf16);
  return out;
}

Matrix<float> widen(const Matrix<bf16>& m) {
  Matrix<float> out(m.num_rows, m.num_cols);
  std::transform(m.values.begin(), m.values.end(), out.values.begin(), to_float);
  return out;
}

}  // namespace sluice::golden
