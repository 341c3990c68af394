#include "ops/cuda/bench_support.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/bench_kernels.h"
#include "ops/cuda/device.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {
namespace {

constexpr size_t kAlignment = 256;  // of packed data and of scales

constexpr int64_t kReadBytes = int64_t{8} << 30;
constexpr int kReadWarmUps = 3;
constexpr int kReadRounds = 9;

cudaStream_t stream() {
  return device().stream;
}

size_t align(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t value_bytes(WeightFormat format, int64_t num_out, int64_t num_in) {
  const size_t width = format == WeightFormat::kBf16 ? sizeof(uint16_t) : sizeof(uint8_t);
  return static_cast<size_t>(num_out * num_in) * width;
}

int64_t num_scales(WeightFormat format, int64_t num_out, int64_t num_in) {
  if (format == WeightFormat::kBf16) return num_out;
  return (num_out + kFp8BlockSize - 1) / kFp8BlockSize * (num_in / kFp8BlockSize);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Launch>
double read_gbs(const Buffer& buffer, uint32_t* sink, Launch&& launch) {
  GpuClock clock;
  const auto* from = reinterpret_cast<const uint8_t*>(buffer.data());
  for (int i = 0; i < kReadWarmUps + kReadRounds; ++i) {
    if (i >= kReadWarmUps) clock.mark();
    SLUICE_CUDA_CHECK(launch(from, kReadBytes, device().num_sms, sink, stream()));
  }
  clock.mark();
  return static_cast<double>(kReadBytes) / median(clock.intervals_us()) * 1e-3;
}

}  // namespace

Status check_gpu() {
  return open_device().status();
}

std::string describe_gpu() {
  int version = 0;
  SLUICE_CUDA_CHECK(cudaRuntimeGetVersion(&version));
  const Device& gpu = device();
  return fmt::format("{}, {} SMs, compute capability {}.{}, CUDA {}.{}", gpu.name, gpu.num_sms,
                     gpu.compute_capability / 10, gpu.compute_capability % 10, version / 1000,
                     version % 1000 / 10);
}

void fill_normal(bf16* to, int64_t count, uint64_t key, float sigma) {
  SLUICE_CUDA_CHECK(launch_fill_bf16(to, count, key, sigma, stream()));
}
void fill_normal(float* to, int64_t count, uint64_t key, float sigma) {
  SLUICE_CUDA_CHECK(launch_fill_f32(to, count, key, sigma, stream()));
}

size_t synthetic_weight_bytes(WeightFormat format, int64_t num_out, int64_t num_in) {
  const auto scales = static_cast<size_t>(num_scales(format, num_out, num_in));
  return align(value_bytes(format, num_out, num_in)) + align(scales * sizeof(float)) + kAlignment;
}

WeightView make_synthetic_weight(WeightFormat format, int64_t num_out, int64_t num_in, uint64_t key,
                                 float sigma, std::byte* to) {
  SLUICE_CHECK_EQ(num_out % kRowGroup, 0);
  SLUICE_CHECK_EQ(num_in % kScaleBlock, 0);
  to += align(reinterpret_cast<uintptr_t>(to)) - reinterpret_cast<uintptr_t>(to);
  auto* scales = reinterpret_cast<float*>(to + align(value_bytes(format, num_out, num_in)));
  const bool is_fp8 = format == WeightFormat::kFp8Block128;
  SLUICE_CUDA_CHECK(is_fp8 ? launch_fill_fp8_codes(reinterpret_cast<uint8_t*>(to), num_out * num_in,
                                                   key, stream())
                           : launch_fill_f16_codes(reinterpret_cast<uint16_t*>(to),
                                                   num_out * num_in, key, stream()));
  const float filled = is_fp8 ? kFp8FillSigma : kF16FillSigma;
  SLUICE_CUDA_CHECK(launch_fill_scales(scales, num_scales(format, num_out, num_in), ~key,
                                       static_cast<float>(1 << kActivationShift) * sigma / filled,
                                       stream()));
  WeightView weight;
  weight.format = format;
  weight.data = to;
  weight.scales = scales;
  weight.num_out = num_out;
  weight.num_in = num_in;
  return weight;
}

Result<ReadSpeed> measure_read_speed() {
  SLUICE_ASSIGN_OR_RETURN(const Buffer buffer,
                          device_memory().allocate(static_cast<size_t>(kReadBytes) + kAlignment,
                                                   "read buffer", MemoryKind::kPrivate));
  SLUICE_CUDA_CHECK(
      launch_fill_fp8_codes(reinterpret_cast<uint8_t*>(buffer.data()), kReadBytes, 1, stream()));
  auto* sink = reinterpret_cast<uint32_t*>(buffer.data() + kReadBytes);
  ReadSpeed speed;
  speed.bulk_gbs = read_gbs(buffer, sink, launch_bulk_read);
  speed.plain_gbs = read_gbs(buffer, sink, launch_plain_read);
  return speed;
}

void await_gpu() {
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream()));
}

struct GpuClock::Impl {
  std::vector<cudaEvent_t> events;
  size_t num_marks = 0;
};

GpuClock::GpuClock() : impl_(std::make_unique<Impl>()) {}
GpuClock::~GpuClock() {
  for (cudaEvent_t event : impl_->events) SLUICE_CUDA_CHECK(cudaEventDestroy(event));
}

void GpuClock::mark() {
  if (impl_->num_marks == impl_->events.size()) {
    SLUICE_CUDA_CHECK(cudaEventCreate(&impl_->events.emplace_back()));
  }
  SLUICE_CUDA_CHECK(cudaEventRecord(impl_->events[impl_->num_marks++], stream()));
}

std::vector<double> GpuClock::intervals_us() {
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream()));
  std::vector<double> intervals;
  for (size_t i = 1; i < impl_->num_marks; ++i) {
    float ms = 0.0f;
    SLUICE_CUDA_CHECK(cudaEventElapsedTime(&ms, impl_->events[i - 1], impl_->events[i]));
    intervals.push_back(1e3 * static_cast<double>(ms));
  }
  impl_->num_marks = 0;
  return intervals;
}

}  // namespace sluice::cuda
