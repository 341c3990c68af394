// In bench_support's place where SLUICE_CUDA is off or there was no nvcc.
#include "base/check.h"
#include "ops/cuda/bench_peer.h"
#include "ops/cuda/bench_support.h"

namespace sluice::cuda {

struct GpuClock::Impl {};
struct StepLaunches::Impl {};
struct MatmulPeer::Impl {};

Status check_gpu() {
  return unsupported("this build has no CUDA backend; configure it with -DSLUICE_CUDA=ON");
}

// Nothing below is reached behind that answer.

std::string describe_gpu() {
  return std::string();
}
void fill_normal(bf16*, int64_t, uint64_t, float) {}
void fill_normal(float*, int64_t, uint64_t, float) {}
size_t synthetic_weight_bytes(WeightFormat, int64_t, int64_t) {
  return 0;
}
WeightView make_synthetic_weight(WeightFormat, int64_t, int64_t, uint64_t, float, std::byte*) {
  return WeightView();
}
Result<ReadSpeed> measure_read_speed() {
  return check_gpu();
}

void await_gpu() {}

GpuClock::GpuClock() = default;
GpuClock::~GpuClock() = default;
void GpuClock::mark() {}
std::vector<double> GpuClock::intervals_us() {
  return {};
}

StepLaunches::StepLaunches() = default;
StepLaunches::~StepLaunches() = default;
void StepLaunches::begin_catching() {}
int StepLaunches::num_caught() {
  return 0;
}
std::unique_ptr<StepLaunches> StepLaunches::end_catching() {
  return nullptr;
}
std::span<const StepLaunch> StepLaunches::all() const {
  return {};
}
double StepLaunches::chain_us(std::span<const int>, int) const {
  return 0.0;
}

MatmulPeer::MatmulPeer() = default;
MatmulPeer::~MatmulPeer() = default;
Result<std::unique_ptr<MatmulPeer>> MatmulPeer::open(const MatmulShape&) {
  return check_gpu();
}
std::string MatmulPeer::name() const {
  return std::string();
}
double MatmulPeer::us(PeerFormat, const MatmulShape&, int, int) {
  return 0.0;
}

}  // namespace sluice::cuda
