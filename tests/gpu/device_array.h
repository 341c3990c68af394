#pragma once
// Device memory of a test.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace sluice {

/// Of `count` values; freed with it. Every byte begins as 0xff: NaN, or an index far outside.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  void set(std::span<const T> values) {
    EXPECT_LE(values.size(), count_);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  void poison() { EXPECT_EQ(cudaMemset(data_, 0xff, bytes()), cudaSuccess); }
  T* data() const { return static_cast<T*>(data_); }
  /// Behind everything launched.
  std::vector<T> fetch() const {
    std::vector<T> out(count_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(out.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }

  void* data_ = nullptr;
  size_t count_;
};

}  // namespace sluice
