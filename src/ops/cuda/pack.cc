#include "ops/cuda/pack.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/bf16.h"
#include "base/threads.h"
#include "ops/cuda/device.h"
#include "ops/cuda/pack_kernels.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {
namespace {

constexpr size_t kAlignment = 256;  // of packed data and of scales
constexpr size_t kChunkBytes = size_t{32} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;  // of a chunk, for one thread
constexpr int kNumThreads = 8;                   // some four keep up with a PCIe 5 link

size_t align(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t num_groups(int64_t num_rows) {
  return (num_rows + kRowGroup - 1) / kRowGroup;
}

/// Row-major bytes of one row, and packed bytes of one row group.
size_t row_bytes(const WeightView& w) {
  return static_cast<size_t>(w.num_in) * (w.format == WeightFormat::kBf16 ? sizeof(bf16) : 1);
}
size_t group_bytes(const WeightView& w) {
  return row_bytes(w) * kRowGroup;
}

size_t num_scales(const WeightView& w) {
  if (w.format == WeightFormat::kBf16) return static_cast<size_t>(w.num_out);
  const int64_t rows = (w.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
  return static_cast<size_t>(rows * w.scale_cols());
}

/// Two pinned buffers that take turns, and a device buffer for what is packed from.
class Staging {
 public:
  static Result<std::unique_ptr<Staging>> open() {
    constexpr std::string_view kWhat = "buffers that bring weights to the GPU";
    std::unique_ptr<Staging> staging(new Staging);
    for (Turn& turn : staging->turns_) {
      SLUICE_ASSIGN_OR_RETURN(turn.pinned,
                              device_memory().allocate(kChunkBytes, kWhat, MemoryKind::kShared));
    }
    SLUICE_ASSIGN_OR_RETURN(staging->device_,
                            device_memory().allocate(kChunkBytes, kWhat, MemoryKind::kPrivate));
    return staging;
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
    for (const Turn& turn : turns_) SLUICE_CUDA_CHECK(cudaEventDestroy(turn.is_copied));
  }

  /// At most kChunkBytes to `to` on the device; null: into the device buffer, whose address it returns.
  std::byte* send(const void* from, size_t num_bytes, std::byte* to) {
    return send_filled(num_bytes, to, [&](std::byte* pinned) { fill(pinned, from, num_bytes); });
  }

  template <typename Fill>
  std::byte* send_filled(size_t num_bytes, std::byte* to, Fill&& fill_pinned) {
    SLUICE_CHECK_LE(num_bytes, kChunkBytes);
    if (to == nullptr) to = device_.data();
    Turn& turn = turns_[next_++ % 2];
    SLUICE_CUDA_CHECK(cudaEventSynchronize(turn.is_copied));
    fill_pinned(turn.pinned.data());
    const cudaStream_t stream = device().stream;
    SLUICE_CUDA_CHECK(
        cudaMemcpyAsync(to, turn.pinned.data(), num_bytes, cudaMemcpyHostToDevice, stream));
    SLUICE_CUDA_CHECK(cudaEventRecord(turn.is_copied, stream));
    return to;
  }

 private:
  struct Turn {
    Buffer pinned;
    cudaEvent_t is_copied = nullptr;
  };

  Staging() : pool_(kNumThreads) {
    for (Turn& turn : turns_) {
      SLUICE_CUDA_CHECK(cudaEventCreateWithFlags(&turn.is_copied, cudaEventDisableTiming));
    }
  }

  void fill(std::byte* to, const void* from, size_t num_bytes) {
    const auto* source = static_cast<const std::byte*>(from);
    const auto num_pieces = static_cast<int64_t>((num_bytes + kPieceBytes - 1) / kPieceBytes);
    pool_.parallel_for(num_pieces, [&](int64_t piece, int) {
      const size_t first = static_cast<size_t>(piece) * kPieceBytes;
      std::memcpy(to + first, source + first, std::min(kPieceBytes, num_bytes - first));
    });
  }

  ThreadPool pool_;
  Turn turns_[2];
  size_t next_ = 0;
  Buffer device_;
};

/// Never destroyed by itself: at the process's end the driver may be gone already.
std::unique_ptr<Staging>& the_staging() {
  static auto* staging = new std::unique_ptr<Staging>;
  return *staging;
}

/// Pre: open_staging gave it, or will.
Staging& staging() {
  SLUICE_CHECK(open_staging().ok());
  return *the_staging();
}

void pack_values(const WeightView& from, std::byte* to, float* row_factors) {
  const bool is_bf16 = from.format == WeightFormat::kBf16;
  const auto groups_max = static_cast<int64_t>(kChunkBytes / group_bytes(from));
  SLUICE_CHECK_GT(groups_max, 0);
  for (int64_t group = 0; group < num_groups(from.num_out); group += groups_max) {
    const int64_t first = group * kRowGroup;
    const int64_t num_rows = std::min(groups_max * kRowGroup, from.num_out - first);
    const auto* rows = static_cast<const std::byte*>(from.data) + row_bytes(from) * first;
    const size_t num_bytes = row_bytes(from) * static_cast<size_t>(num_rows);
    const PackRows pack = {staging().send(rows, num_bytes, nullptr), num_rows, from.num_in,
                           reinterpret_cast<uint8_t*>(to) + group_bytes(from) * group,
                           row_factors + first};
    SLUICE_CUDA_CHECK((is_bf16 ? launch_pack_bf16 : launch_pack_fp8)(pack, device().stream));
  }
}

void pack_scales(const WeightView& from, float* to) {
  const size_t count = num_scales(from);
  staging().send_filled(count * sizeof(float), reinterpret_cast<std::byte*>(to),
                        [&](std::byte* pinned) {
                          constexpr float kFactor = 1 << kActivationShift;
                          auto* scales = reinterpret_cast<float*>(pinned);
                          for (size_t i = 0; i < count; ++i) scales[i] = kFactor * from.scales[i];
                        });
}

}  // namespace

size_t packed_bytes(const WeightView& from) {
  const size_t values = group_bytes(from) * static_cast<size_t>(num_groups(from.num_out));
  return align(values) + align(num_scales(from) * sizeof(float)) + kAlignment;
}

WeightView pack_weight(const WeightView& from, std::byte* to) {
  SLUICE_CHECK_EQ(from.num_in % kScaleBlock, 0);
  to += align(reinterpret_cast<uintptr_t>(to)) - reinterpret_cast<uintptr_t>(to);
  const size_t values = group_bytes(from) * static_cast<size_t>(num_groups(from.num_out));
  auto* scales = reinterpret_cast<float*>(to + align(values));
  pack_values(from, to, scales);
  if (from.format == WeightFormat::kFp8Block128) pack_scales(from, scales);
  WeightView packed = from;
  packed.data = to;
  packed.scales = scales;
  return packed;
}

Status open_staging() {
  if (the_staging() != nullptr) return Status();
  SLUICE_ASSIGN_OR_RETURN(the_staging(), Staging::open());
  return Status();
}

bool copy_to_device(void* to, const void* from, size_t num_bytes) {
  // Behind or without placing nobody else would give the buffers back.
  const bool is_alone = the_staging() == nullptr;
  if (!open_staging().ok()) return false;
  for (size_t first = 0; first < num_bytes; first += kChunkBytes) {
    staging().send(static_cast<const std::byte*>(from) + first,
                   std::min(kChunkBytes, num_bytes - first), static_cast<std::byte*>(to) + first);
  }
  if (is_alone) release_staging();
  return true;
}

void release_staging() {
  the_staging().reset();
}

}  // namespace sluice::cuda
