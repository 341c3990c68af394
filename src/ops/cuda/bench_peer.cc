// Implements bench_peer.h. Column-major as the library sees it: Y^T = (W^T)^T X^T with all leading dimensions those of the rows.
#include "ops/cuda/bench_peer.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ops/cuda/bench_kernels.h"
#include "ops/cuda/device.h"
#include "ops/cuda/graph_time.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace sluice::cuda {
namespace {

#if CUBLAS_VERSION >= 120900
#define SLUICE_PEER_HAS_BLOCK_SCALES 1
#endif

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kSuggestions = 6;  // timed, of the library's heuristic
/// A chain that chooses among suggestions.
constexpr int kTrialLaunches = 4;
constexpr int kTrialRounds = 3;
constexpr int64_t kFp8RowMultiple = 16;
constexpr int64_t kScaleBlockValues = 128;
/// Weights lie side by side in a pool that holds the largest so many times, twice the L2 and more.
constexpr int64_t kPoolCopies = 2;
constexpr int64_t kCopiesMax = 8;

cudaStream_t stream() {
  return device().stream;
}

void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    check_failed(__FILE__, __LINE__, fmt::format("{}: cuBLASLt status {}", call, int{status}));
  }
}
#define SLUICE_BLAS_CHECK(call) check_blas((call), #call)

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The library's functions that are called.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) suggest;
  decltype(&cublasLtMatmul) matmul;
};

template <typename Function>
bool find_function(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

/// Never closed: the process ends with it.
Result<Library> open_library() {
  const std::string versioned = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  const std::array<std::string, 4> names = {versioned, "libcublasLt.so",
                                            "/usr/local/cuda/lib64/" + versioned,
                                            "/usr/local/cuda/lib64/libcublasLt.so"};
  void* opened = nullptr;
  for (size_t i = 0; i < names.size() && opened == nullptr; ++i) {
    opened = dlopen(names[i].c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (opened == nullptr) return unsupported("{} was not found", versioned);
  Library library = {};
  const bool is_whole =
      find_function(opened, "cublasLtCreate", &library.create) &&
      find_function(opened, "cublasLtDestroy", &library.destroy) &&
      find_function(opened, "cublasLtGetVersion", &library.version) &&
      find_function(opened, "cublasLtMatmulDescCreate", &library.desc_create) &&
      find_function(opened, "cublasLtMatmulDescDestroy", &library.desc_destroy) &&
      find_function(opened, "cublasLtMatmulDescSetAttribute", &library.desc_set) &&
      find_function(opened, "cublasLtMatrixLayoutCreate", &library.layout_create) &&
      find_function(opened, "cublasLtMatrixLayoutDestroy", &library.layout_destroy) &&
      find_function(opened, "cublasLtMatmulPreferenceCreate", &library.preference_create) &&
      find_function(opened, "cublasLtMatmulPreferenceDestroy", &library.preference_destroy) &&
      find_function(opened, "cublasLtMatmulPreferenceSetAttribute", &library.preference_set) &&
      find_function(opened, "cublasLtMatmulAlgoGetHeuristic", &library.suggest) &&
      find_function(opened, "cublasLtMatmul", &library.matmul);
  if (!is_whole) return unsupported("{} lacks a function of its header", versioned);
  return library;
}

/// Where operands, results and scales lie.
struct Memory {
  Buffer buffer;
  std::byte *weights, *rows, *out, *workspace;
  float* scales;
  size_t pool_bytes, row_bytes;
  size_t num_scales;
};

Result<Memory> take_memory(const MatmulShape& largest) {
  const auto num_rows = static_cast<size_t>(round_up(largest.num_rows, kFp8RowMultiple));
  const auto num_out = static_cast<size_t>(largest.num_out);
  const auto num_in = static_cast<size_t>(largest.num_in);
  Memory memory = {};
  memory.pool_bytes = static_cast<size_t>(kPoolCopies) * num_out * num_in * sizeof(bf16);
  memory.row_bytes = num_rows * num_in * sizeof(bf16);
  // A scale a row and 128 columns is the most that either operand needs; blocks round both up to 4.
  memory.num_scales = std::max(num_rows, num_out) * (num_in / kScaleBlockValues + 4);
  const size_t out_bytes = num_rows * num_out * sizeof(bf16);
  const size_t num_bytes = memory.pool_bytes + memory.row_bytes + out_bytes + kWorkspaceBytes +
                           memory.num_scales * sizeof(float);
  SLUICE_ASSIGN_OR_RETURN(memory.buffer, device_memory().allocate(num_bytes, "the peer's operands",
                                                                  MemoryKind::kPrivate));
  memory.weights = reinterpret_cast<std::byte*>(memory.buffer.data());
  memory.rows = memory.weights + memory.pool_bytes;
  memory.out = memory.rows + memory.row_bytes;
  memory.workspace = memory.out + out_bytes;
  memory.scales = reinterpret_cast<float*>(memory.workspace + kWorkspaceBytes);
  return memory;
}

/// One product as the library wants it described.
class Product {
 public:
  Product(const Library& library, PeerFormat format, const MatmulShape& shape, float* scales)
      : library_(library) {
    const bool is_fp8 = format != PeerFormat::kBf16;
    const cudaDataType_t type = is_fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const auto num_rows = static_cast<uint64_t>(shape.num_rows);
    const auto num_out = static_cast<uint64_t>(shape.num_out);
    const auto num_in = static_cast<uint64_t>(shape.num_in);
    SLUICE_BLAS_CHECK(library_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    is_known_ = set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    SLUICE_BLAS_CHECK(library_.layout_create(&weights_, type, num_in, num_out, shape.num_in));
    SLUICE_BLAS_CHECK(library_.layout_create(&rows_, type, num_in, num_rows, shape.num_in));
    SLUICE_BLAS_CHECK(library_.layout_create(&out_, CUDA_R_16BF, num_out, num_rows, shape.num_out));
    if (is_fp8) is_known_ = is_known_ && set_scales(format, scales);
  }
  ~Product() {
    SLUICE_BLAS_CHECK(library_.layout_destroy(out_));
    SLUICE_BLAS_CHECK(library_.layout_destroy(rows_));
    SLUICE_BLAS_CHECK(library_.layout_destroy(weights_));
    SLUICE_BLAS_CHECK(library_.desc_destroy(desc_));
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<cublasLtMatmulAlgo_t> suggestions(cublasLtHandle_t handle) const {
    if (!is_known_) return {};
    cublasLtMatmulPreference_t preference = nullptr;
    SLUICE_BLAS_CHECK(library_.preference_create(&preference));
    SLUICE_BLAS_CHECK(library_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    std::array<cublasLtMatmulHeuristicResult_t, kSuggestions> results = {};
    int num_found = 0;
    // No suggestion is an error to the library and an answer here.
    const cublasStatus_t status =
        library_.suggest(handle, desc_, weights_, rows_, out_, out_, preference, kSuggestions,
                         results.data(), &num_found);
    SLUICE_BLAS_CHECK(library_.preference_destroy(preference));
    std::vector<cublasLtMatmulAlgo_t> found;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < num_found; ++i) {
      if (results[static_cast<size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
      found.push_back(results[static_cast<size_t>(i)].algo);
    }
    return found;
  }

  cublasStatus_t launch(cublasLtHandle_t handle, const Memory& memory, const std::byte* weights,
                        const cublasLtMatmulAlgo_t& algorithm) const {
    const float one = 1.0f;
    const float zero = 0.0f;
    return library_.matmul(handle, desc_, &one, weights, weights_, memory.rows, rows_, &zero,
                           memory.out, out_, memory.out, out_, &algorithm, memory.workspace,
                           kWorkspaceBytes, stream());
  }

 private:
  /// False where the library that was found does not know it.
  template <typename Value>
  bool set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    return library_.desc_set(desc_, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
  bool set_scales(PeerFormat format, float* scales) {
    const bool is_set = set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales) &&
                        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
    if (format == PeerFormat::kFp8Tensor) {
      return is_set && set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    }
#if SLUICE_PEER_HAS_BLOCK_SCALES
    return is_set &&
           set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) &&
           set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
#else
    return false;  // the header does not know it
#endif
  }

  const Library& library_;
  bool is_known_ = false;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t weights_ = nullptr;
  cublasLtMatrixLayout_t rows_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
};

}  // namespace

struct MatmulPeer::Impl {
  Library library;
  cublasLtHandle_t handle = nullptr;
  Memory memory;
  std::optional<PeerFormat> filled;  // what the operands hold

  void fill(PeerFormat format) {
    if (filled.has_value() && (*filled == PeerFormat::kBf16) == (format == PeerFormat::kBf16)) {
      return;
    }
    const auto fill_operand = [&](std::byte* to, size_t num_bytes, uint64_t key) {
      const auto count = static_cast<int64_t>(num_bytes);
      SLUICE_CUDA_CHECK(
          format == PeerFormat::kBf16
              ? launch_fill_bf16(reinterpret_cast<bf16*>(to), count / 2, key, 1.0f, stream())
              : launch_fill_fp8_codes(reinterpret_cast<uint8_t*>(to), count, key, stream()));
    };
    fill_operand(memory.weights, memory.pool_bytes, 1);
    fill_operand(memory.rows, memory.row_bytes, 2);
    SLUICE_CUDA_CHECK(launch_fill_scales(memory.scales, static_cast<int64_t>(memory.num_scales), 3,
                                         1e-4f, stream()));
    filled = format;
  }

  /// Infinity where the library refuses after all.
  double chain_us(const Product& product, size_t weight_bytes,
                  const cublasLtMatmulAlgo_t& algorithm, int num_launches, int num_rounds) {
    const int64_t copies =
        std::clamp<int64_t>(static_cast<int64_t>(memory.pool_bytes / weight_bytes), 1, kCopiesMax);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    SLUICE_CUDA_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < num_launches && status == CUBLAS_STATUS_SUCCESS; ++i) {
      const auto copy = static_cast<size_t>(i % copies);
      status = product.launch(handle, memory, memory.weights + copy * weight_bytes, algorithm);
    }
    cudaGraph_t graph = nullptr;
    SLUICE_CUDA_CHECK(cudaStreamEndCapture(stream(), &graph));
    double us = std::numeric_limits<double>::infinity();
    if (status == CUBLAS_STATUS_SUCCESS) us = graph_us(graph, num_rounds) / num_launches;
    SLUICE_CUDA_CHECK(cudaGraphDestroy(graph));
    return us;
  }
};

MatmulPeer::MatmulPeer() : impl_(std::make_unique<Impl>()) {}
MatmulPeer::~MatmulPeer() {
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream()));
  if (impl_->handle != nullptr) SLUICE_BLAS_CHECK(impl_->library.destroy(impl_->handle));
}

Result<std::unique_ptr<MatmulPeer>> MatmulPeer::open(const MatmulShape& largest) {
  std::unique_ptr<MatmulPeer> peer(new MatmulPeer);
  SLUICE_ASSIGN_OR_RETURN(peer->impl_->library, open_library());
  SLUICE_ASSIGN_OR_RETURN(peer->impl_->memory, take_memory(largest));
  if (peer->impl_->library.create(&peer->impl_->handle) != CUBLAS_STATUS_SUCCESS) {
    peer->impl_->handle = nullptr;
    return unsupported("cuBLASLt could not be opened on this GPU");
  }
  return peer;
}

std::string MatmulPeer::name() const {
  // 130100 for 13.1.0.
  const size_t version = impl_->library.version();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

double MatmulPeer::us(PeerFormat format, const MatmulShape& shape, int num_launches,
                      int num_rounds) {
  MatmulShape taken = shape;
  const bool is_fp8 = format != PeerFormat::kBf16;
  if (is_fp8) taken.num_rows = static_cast<int>(round_up(shape.num_rows, kFp8RowMultiple));
  const size_t weight_bytes = static_cast<size_t>(shape.num_out) *
                              static_cast<size_t>(shape.num_in) * (is_fp8 ? 1 : sizeof(bf16));
  SLUICE_CHECK_LE(weight_bytes, impl_->memory.pool_bytes);
  impl_->fill(format);
  const Product product(impl_->library, format, taken, impl_->memory.scales);
  const cublasLtMatmulAlgo_t* best = nullptr;
  double best_us = std::numeric_limits<double>::infinity();
  const std::vector<cublasLtMatmulAlgo_t> suggestions = product.suggestions(impl_->handle);
  for (const cublasLtMatmulAlgo_t& algorithm : suggestions) {
    const double us =
        impl_->chain_us(product, weight_bytes, algorithm, kTrialLaunches, kTrialRounds);
    if (us >= best_us) continue;
    best_us = us;
    best = &algorithm;
  }
  if (best == nullptr) return 0.0;
  return impl_->chain_us(product, weight_bytes, *best, num_launches, num_rounds);
}

}  // namespace sluice::cuda

#else

namespace sluice::cuda {

struct MatmulPeer::Impl {};

MatmulPeer::MatmulPeer() = default;
MatmulPeer::~MatmulPeer() = default;

Result<std::unique_ptr<MatmulPeer>> MatmulPeer::open(const MatmulShape&) {
  return unsupported("this build was made without cublasLt.h");
}
std::string MatmulPeer::name() const {
  return std::string();
}
double MatmulPeer::us(PeerFormat, const MatmulShape&, int, int) {
  return 0.0;
}

}  // namespace sluice::cuda

#endif
