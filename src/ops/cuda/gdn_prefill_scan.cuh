#pragma once
// The scan over a run's chunks: a block has 64 value columns of a head. A warpgroup takes them through chunk after chunk (gdn_prefill_chunk.cuh), a warp beside it brings the images by
// bulk copies, kStages chunks deep, and takes o away.

#include "ops/cuda/gdn_prefill_chunk.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::gdn_prefill {

/// A block's work.
struct ScanPlace {
  const Images& images;
  const Part& part;
  int head, slice;
  uint8_t* memory;

  __device__ int key_head() const { return head * images.num_k_heads / images.num_v_heads; }
  __device__ uint32_t stage(int slot) const {
    return shared_address(memory) + static_cast<uint32_t>(slot) * kStageBytes;
  }
  __device__ uint32_t full(int slot) const {
    return shared_address(memory + kBarriersAt) + static_cast<uint32_t>(slot) * sizeof(uint64_t);
  }
  /// Where o of a chunk is put.
  __device__ uint32_t tile() const { return shared_address(memory + kOutputsAt); }
  /// The chunk behind which the checkpoint is taken.
  __device__ int kept() const {
    return part.run.checkpoint_slot == kNoSlot ? -1
                                               : part.run.num_rows / kRows - part.first_chunk - 1;
  }
};

/// The warpgroup.
__device__ __forceinline__ void scan_chunks(const ScanPlace& at, const RecurrentLayerView& state) {
  const int column =
      at.slice * kTileColumns + static_cast<int>(threadIdx.x) / kWarp * kColumnsOfWarp;
  const int64_t head_at = static_cast<int64_t>(at.head) * kHeadDim * kHeadDim;
  float* own = state.data + at.part.run.slot * state.slot_stride + head_at;
  float* checkpoint = state.data + at.part.run.checkpoint_slot * state.slot_stride + head_at;
  ScanState S;
  S.memory = shared_address(at.memory + kStatesAt) + threadIdx.x * 16;
  S.load(own, column);  // written by no kernel beside this one's predecessor
  pdl_wait();
  pdl_launch();
  const int kept = at.kept();
  const int last = at.part.num_chunks - 1;
  const uint32_t sink = shared_address(at.memory + kSinkAt) + threadIdx.x * 4;
  WideSums sums;
  ErrorTerms terms;
  RingCursor<kStages> ring;
  const auto wait = [&] { barrier_wait(at.full(ring.slot), ring.parity); };
  wait();
  wgmma_fence();
  read_state<0, kHalves * kSteps>(S, tile_at(at.stage(0)), sums);
  wgmma_commit();
  terms.load(at.stage(0));
  wgmma_wait<0>();
  pin(sums);
  S.parts.hold();
#pragma unroll 1
  for (int chunk = 0; chunk < last; ++chunk) {
    const uint32_t stage = at.stage(ring.slot);
    ring.advance();
    wait();
    ChunkScan{S, sums, terms, stage, sink}.run<false>(at.stage(ring.slot), at.tile());
    if (chunk == kept) S.store(checkpoint, column);
  }
  ChunkScan{S, sums, terms, at.stage(ring.slot), sink}.run<true>(0, at.tile());
  if (last == kept) S.store(checkpoint, column);
  S.store(own, column);
}

/// The warp beside it: images of chunks into shared memory, o out of it.
__device__ __forceinline__ void move_images(const ScanPlace& at) {
  const Images& images = at.images;
  const bool is_mover = threadIdx.x % kWarp == 0;
  const auto send = [&](int chunk, int slot) {
    const int image = at.part.first_image + chunk;
    const uint32_t to = at.stage(slot);
    const uint32_t barrier = at.full(slot);
    barrier_expect(barrier, kKeyImageBytes + kTileBytes + kHeadImageBytes);
    load_bulk(to, images.key_image(image, at.key_head()), kKeyImageBytes, barrier);
    load_bulk(to + kValuesAt, images.value_image(image, at.head) + at.slice * kTileBytes,
              kTileBytes, barrier);
    load_bulk(to + kHeadAt, images.head_image(image, at.head), kHeadImageBytes, barrier);
  };
  pdl_wait();
  pdl_launch();
  if (is_mover) {
    for (int i = 0; i < min(kStages, at.part.num_chunks); ++i) send(i, i);
  }
  pass_barrier(kTileFree, kScanThreads);
  int slot = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < at.part.num_chunks; ++chunk) {
    gdn::barrier_sync(kChunkDone, kScanThreads);
    if (is_mover) {
      store_bulk(images.value_image(at.part.first_image + chunk, at.head) + at.slice * kTileBytes,
                 at.tile(), kTileBytes);
      store_bulk_wait();
      if (chunk + kStages < at.part.num_chunks) send(chunk + kStages, slot);
    }
    __syncwarp();
    if (chunk + 1 < at.part.num_chunks) pass_barrier(kTileFree, kScanThreads);
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
}

/// Grid (kSlices, num_v_heads, parts).
__global__ void __launch_bounds__(kScanThreads, 1)
    scan_kernel(Images images, const __grid_constant__ Batch batch, RecurrentLayerView state) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ScanPlace at = {images, batch.parts[blockIdx.z], static_cast<int>(blockIdx.y),
                        static_cast<int>(blockIdx.x), memory};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) barrier_init(at.full(i), 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < kScanThreads - kWarp) {
    scan_chunks(at, state);
  } else {
    move_images(at);
  }
}

}  // namespace sluice::cuda::gdn_prefill
