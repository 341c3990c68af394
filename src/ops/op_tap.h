#pragma once
// A look at every op's outputs, for verification: a table that calls another one and then a tap.

#include <span>
#include <string_view>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op_table.h"

namespace sluice {

/// One output of an op when the op is done; exactly one of the views has data.
struct OpOutput {
  MatView<bf16> values;
  MatView<float> floats;
};

/// Called behind every op of a tapped table. It may write into the outputs: what follows then sees the new values.
class OpTap {
 public:
  explicit OpTap(const OpTable& inner) : inner_(inner) {}
  virtual ~OpTap() = default;
  OpTap(const OpTap&) = delete;
  OpTap& operator=(const OpTap&) = delete;

  const OpTable& inner() const { return inner_; }
  /// `op` is the table's member; both forms of the recurrence are "gdn". Keys and values in pages and the
  /// recurrent state are no outputs here.
  virtual void after(std::string_view op, std::span<const OpOutput> outputs) = 0;

 private:
  const OpTable& inner_;
};

/// Runs context.tap->inner()'s ops, each followed by context.tap->after(); gather is left out, blocks are made of their
/// parts, and no rows are padded. Only for contexts with a tap on `inner`.
OpTable tapped_ops(const OpTable& inner);

}  // namespace sluice
