#include "model/weight_binder.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/json_fields.h"
#include "model/values.h"

namespace sluice {
namespace {

std::string dtype_list(std::initializer_list<Dtype> dtypes) {
  std::string text;
  for (const Dtype dtype : dtypes) {
    if (!text.empty()) text += " or ";
    text += dtype_name(dtype);
  }
  return text;
}

std::string position_text(std::span<const int64_t> shape, int64_t idx) {
  std::vector<int64_t> position(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    position[dim] = idx % shape[dim];
    idx /= shape[dim];
  }
  return shape_text(position);
}

bool stored_f32_or_bf16(TensorRole role) {
  return role == TensorRole::kALog || role == TensorRole::kGatedNorm;
}

}  // namespace

WeightBinder::WeightBinder(const ModelConfig& config, const ShardSet& shards, bool has_mtp,
                           TensorMemory* memory, Diagnostics* diagnostics)
    : shards_(shards), memory_(memory), diagnostics_(diagnostics) {
  StorageFormat format;
  format.has_mtp = has_mtp;
  table_ = checkpoint_tensors(config, format);
  for (size_t i = 0; i < table_.size(); ++i) places_[table_[i].name] = i;
}

const TensorSpec& WeightBinder::spec(const std::string& name) const {
  return table_[places_.at(name)];
}

void WeightBinder::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

LocatedTensor WeightBinder::locate(const std::string& name, std::initializer_list<Dtype> dtypes,
                                   const std::vector<int64_t>* shape) {
  if (failed()) return {};
  const std::optional<LocatedTensor> tensor = shards_.find(name);
  if (!tensor) {
    fail(data_loss("{}: tensor {} is missing; expected {} {}", shards_.dir_name(), name,
                   dtype_list(dtypes), shape_text(*shape)));
    return {};
  }
  bool good = tensor->entry->shape == *shape;
  bool dtype_fits = false;
  for (const Dtype dtype : dtypes) dtype_fits = dtype_fits || tensor->entry->dtype == dtype;
  good = good && dtype_fits;
  if (!good) {
    fail(data_loss("{}: tensor {} is {} {}; config.json implies {} {}", tensor->file->name(), name,
                   dtype_name(tensor->entry->dtype), shape_text(tensor->entry->shape),
                   dtype_list(dtypes), shape_text(*shape)));
    return {};
  }
  bound_.insert(name);
  return *tensor;
}

// The format does not promise alignment. Published files are aligned; for others one copy keeps every reader simple.
const void* WeightBinder::aligned_data(const LocatedTensor& tensor) {
  const std::span<const std::byte> bytes = tensor.bytes();
  const auto element = static_cast<uintptr_t>(dtype_bytes(tensor.entry->dtype));
  if (reinterpret_cast<uintptr_t>(bytes.data()) % element == 0) {
    unread_.push_back({tensor, bytes});
    return bytes.data();
  }
  const Result<std::span<std::byte>> copy = memory_->bytes(bytes.size());
  if (!copy.ok()) {
    fail(copy.status());
    return nullptr;
  }
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  diagnostics_->notes.push_back(
      fmt::format("{}: tensor {} starts at the odd byte {}; its {} bytes were copied to memory",
                  tensor.file->name(), tensor.entry->name, tensor.entry->begin, bytes.size()));
  unread_.push_back({tensor, *copy});
  return copy->data();
}

WeightView WeightBinder::linear(const std::string& module) {
  const std::string name = module + ".weight";
  const TensorSpec& wanted = spec(name);
  const LocatedTensor tensor = locate(name, {Dtype::kBf16, Dtype::kF8E4M3}, &wanted.shape);
  if (failed()) return {};
  WeightView view;
  view.num_out = wanted.shape[0];
  view.num_in = wanted.shape[1];
  const std::string scale_name = name + std::string(kScaleSuffix);
  if (tensor.entry->dtype == Dtype::kF8E4M3) {
    if (view.num_in % kFp8BlockSize != 0) {
      fail(unsupported("{}: tensor {} is F8_E4M3 {}; expected rows of whole blocks of {}",
                       tensor.file->name(), name, shape_text(wanted.shape), kFp8BlockSize));
      return {};
    }
    view.format = WeightFormat::kFp8Block128;
    view.scales = scales(scale_name, wanted);
  } else if (const auto scale = shards_.find(scale_name)) {
    fail(data_loss("{}: tensor {} goes with a BF16 {}; expected F8_E4M3", scale->file->name(),
                   scale_name, name));
  }
  view.data = failed() ? nullptr : aligned_data(tensor);
  return view;
}

const float* WeightBinder::scales(const std::string& scale_name, const TensorSpec& weight) {
  const std::vector<int64_t> shape = scale_shape(weight.shape[0], weight.shape[1]);
  const LocatedTensor tensor = locate(scale_name, {Dtype::kBf16, Dtype::kF32, Dtype::kF16}, &shape);
  const VectorView values = widened(tensor);
  if (failed()) return nullptr;
  check_scales(tensor, values);
  return values.data();
}

// A quantiser never writes a negative scale; a zero one says that the whole block is zero.
void WeightBinder::check_scales(const LocatedTensor& tensor, VectorView values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0.0f) ++num_zero_scales_;
    if (values[i] >= 0.0f) continue;
    fail(data_loss("{}: tensor {}{} is {}; expected a scale that is not negative",
                   tensor.file->name(), tensor.entry->name,
                   position_text(tensor.entry->shape, static_cast<int64_t>(i)), values[i]));
    return;
  }
}

std::span<float> WeightBinder::widened(const LocatedTensor& tensor) {
  if (failed()) return {};
  const Result<std::span<float>> out =
      memory_->floats(static_cast<size_t>(tensor.entry->num_elements()));
  if (!out.ok()) {
    fail(out.status());
    return {};
  }
  widen(tensor.entry->dtype, tensor.bytes(), *out);
  for (size_t i = 0; i < out->size(); ++i) {
    if (std::isfinite((*out)[i])) continue;
    fail(data_loss("{}: tensor {}{} is {}; expected finite values", tensor.file->name(),
                   tensor.entry->name, position_text(tensor.entry->shape, static_cast<int64_t>(i)),
                   (*out)[i]));
    return {};
  }
  return *out;
}

VectorView WeightBinder::vector(const std::string& name) {
  const TensorSpec& wanted = spec(name);
  const LocatedTensor tensor = stored_f32_or_bf16(wanted.role)
                                   ? locate(name, {Dtype::kBf16, Dtype::kF32}, &wanted.shape)
                                   : locate(name, {Dtype::kBf16}, &wanted.shape);
  const std::span<float> values = widened(tensor);
  if (failed() || wanted.role != TensorRole::kGatedNorm) return values;
  // The oracle holds this weight as bf16 and forms w * n there, also where the file has F32.
  for (float& value : values) value = rb(value);
  return values;
}

MatView<const bf16> WeightBinder::embedding(const std::string& name) {
  const TensorSpec& wanted = spec(name);
  const LocatedTensor tensor = locate(name, {Dtype::kBf16}, &wanted.shape);
  if (failed()) return {};
  return {static_cast<const bf16*>(aligned_data(tensor)), wanted.shape[0], wanted.shape[1]};
}

void WeightBinder::finish() {
  if (num_zero_scales_ == 0) return;
  diagnostics_->warnings.push_back(
      fmt::format("{}: {} block scales are zero; those blocks are read as zero", shards_.dir_name(),
                  num_zero_scales_));
}

std::vector<TensorSpec> WeightBinder::bound_tensors() const {
  std::vector<TensorSpec> bound;
  const auto add = [&](TensorSpec spec) {
    const std::optional<LocatedTensor> tensor = shards_.find(spec.name);
    spec.dtype = tensor->entry->dtype;
    spec.shape = tensor->entry->shape;
    bound.push_back(std::move(spec));
  };
  for (const TensorSpec& spec : table_) {
    if (!was_bound(spec.name)) continue;
    add(spec);
    TensorSpec scale = spec;
    scale.name += kScaleSuffix;
    scale.role = TensorRole::kScale;
    if (was_bound(scale.name)) add(std::move(scale));
  }
  return bound;
}

}  // namespace sluice
