#pragma once
// The steps of one caller: their blocks (step_block.h) and their recorded graphs.

#include <memory>
#include <vector>

#include "ops/cuda/sample.h"
#include "ops/cuda/step_block.h"
#include "ops/cuda/work_memory.h"
#include "ops/op_table.h"

namespace sluice::cuda {

class StepState : public BackendState {
 public:
  static Result<std::unique_ptr<BackendState>> open(const OpDims& dims);
  ~StepState() override;

  /// As OpTable says.
  bool begin(const StepRows& rows, OpContext& context);
  void end(const OpContext& context);
  void await(OpContext& context) const;
  const WorkMemory& work() const { return work_; }
  /// Of the step's draws, on the device: how, and what their logits were.
  const SampleRow* sample_rows() const {
    return reinterpret_cast<const SampleRow*>(device_.block + device_.layout.draws);
  }
  DrawnLogits* drawn_logits() const { return device_.drawn_logits; }

 private:
  /// A step's calls: those of one key, with as many rows.
  struct Graph {
    StepKey key;
    int64_t num_rows;
    int64_t num_logit_rows;
    cudaGraphExec_t exec;
  };
  /// How the step under way is made; kRehearsed: recorded, and not run.
  enum class Mode { kCalled, kRecorded, kRehearsed, kReplayed };

  StepState() = default;
  void bring_rows(const StepRows& rows, OpContext& context);
  void write_block(const StepRows& rows, int num_runs);
  StepView view_of(const StepRows& rows) const;
  const Graph* find_graph(const StepRows& rows) const;
  void await_count(const int64_t& count, int64_t wanted) const;

  WorkMemory work_;
  int64_t rows_max_ = 0;
  int64_t pages_max_ = 0;
  Buffer mapped_;  // kBlocks blocks, then the report
  Buffer device_buffer_;
  StepDevice device_ = {};
  StepReport* report_ = nullptr;
  int64_t num_begun_ = 0;
  std::vector<Graph> graphs_;
  Graph recording_ = {};
  Mode mode_ = Mode::kCalled;
};

/// The state that open_state gave to this context's caller.
StepState& step_state(const OpContext& context);

/// 1, 2, 4 .. kGraphRowsMax rows, so that few graphs serve every number; as many beyond.
int64_t padded_step_rows(int64_t num_rows);

}  // namespace sluice::cuda
