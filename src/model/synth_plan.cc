#include "model/synth_plan.h"

#include <algorithm>
#include <map>

#include "base/json.h"

namespace sluice {
namespace {

std::string fp8_shard_name(const TensorSpec& tensor) {
  if (tensor.is_mtp) return "mtp.safetensors";
  if (tensor.layer_idx < 0) return "outside.safetensors";
  return fmt::format("layers-{}.safetensors", tensor.layer_idx);
}

void assign_by_layer(SynthPlan* plan) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < plan->tensors.size(); ++i) {
    const std::string name = fp8_shard_name(plan->tensors[i].spec);
    const auto [place, is_new] = places.try_emplace(name, plan->shards.size());
    if (is_new) plan->shards.emplace_back().file_name = name;
    plan->shards[place->second].tensors.push_back(i);
  }
}

void assign_by_size(int64_t shard_bytes_max, SynthPlan* plan) {
  int64_t used = 0;
  for (size_t i = 0; i < plan->tensors.size(); ++i) {
    const int64_t bytes = plan->tensors[i].spec.num_bytes();
    if (plan->shards.empty() || used + bytes > shard_bytes_max) {
      plan->shards.emplace_back();
      used = 0;
    }
    plan->shards.back().tensors.push_back(i);
    used += bytes;
  }
  for (size_t i = 0; i < plan->shards.size(); ++i) {
    plan->shards[i].file_name =
        fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan->shards.size());
  }
}

std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

void lay_out(size_t shard_idx, SynthPlan* plan) {
  PlannedShard& shard = plan->shards[shard_idx];
  std::sort(shard.tensors.begin(), shard.tensors.end(), [&](size_t a, size_t b) {
    const TensorSpec& x = plan->tensors[a].spec;
    const TensorSpec& y = plan->tensors[b].spec;
    const int64_t x_width = dtype_bytes(x.dtype);
    const int64_t y_width = dtype_bytes(y.dtype);
    return x_width != y_width ? x_width > y_width : x.name < y.name;
  });
  std::string json = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const size_t i : shard.tensors) {
    PlannedTensor& tensor = plan->tensors[i];
    const int64_t end = offset + tensor.spec.num_bytes();
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        json_quote(tensor.spec.name), dtype_name(tensor.spec.dtype),
                        shape_text(tensor.spec.shape), offset, end);
    tensor.shard_idx = shard_idx;
    tensor.offset = offset;
    offset = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  shard.header = little_endian(json.size()) + json;
  for (const size_t i : shard.tensors) {
    plan->tensors[i].offset += static_cast<int64_t>(shard.header.size());
  }
  shard.num_bytes = static_cast<int64_t>(shard.header.size()) + offset;
  plan->tensor_bytes += offset;
  plan->file_bytes += shard.num_bytes;
}

}  // namespace

SynthPlan plan_synth(const SynthSpec& spec) {
  SynthPlan plan;
  for (TensorSpec& tensor : checkpoint_tensors(spec.config, spec.format)) {
    // The table puts a scale right after its weight.
    if (tensor.role == TensorRole::kScale) plan.tensors.back().scale_idx = plan.tensors.size();
    plan.tensors.push_back({std::move(tensor), 0, 0, 0});
  }
  if (spec.format.linears == WeightFormat::kFp8Block128) {
    assign_by_layer(&plan);
  } else {
    assign_by_size(spec.shard_bytes_max, &plan);
  }
  for (size_t i = 0; i < plan.shards.size(); ++i) lay_out(i, &plan);
  return plan;
}

std::string index_json(const SynthPlan& plan) {
  std::map<std::string, std::string> weight_map;
  for (const PlannedTensor& tensor : plan.tensors) {
    weight_map[tensor.spec.name] = plan.shards[tensor.shard_idx].file_name;
  }
  JsonValue map = JsonValue::object();
  auto& members = map.members();
  for (const auto& [name, file] : weight_map) members.emplace_back(name, JsonValue::string(file));
  JsonValue metadata = JsonValue::object();
  metadata.set("total_size", JsonValue::integer(plan.tensor_bytes));
  JsonValue root = JsonValue::object();
  root.set("metadata", std::move(metadata));
  root.set("weight_map", std::move(map));
  return dump_json_python(root) + "\n";
}

}  // namespace sluice
