// bench_kernels: each linear call of the family's shapes, cold weights, against the read bandwidth of the same run.
//
// us is the median over rounds and us_min the least; GB/s counts the weights' bytes once over the median; "of stream"
// compares the least times of both, which is what other load on the machine disturbs least.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>

#include "bench/kernels/linear_calls.h"
#include "bench/kernels/stream.h"

namespace sluice::bench {
namespace {

struct Options {
  std::string model;
  std::string call;
  std::string isa = "best";
  std::string formats = "bf16,fp8";
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 64, 512};
  int threads = 0;
  int rounds = 15;
  size_t buffer_mb = 1200;
  size_t misalign = 0;
  bool json = false;
  bool cpu_time = false;
};

struct Times {
  double median = 0;
  double least = 0;
};

bool use_cpu_time = false;

double seconds() {
  if (!use_cpu_time) return now();
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <typename Fn>
Times measure(int rounds, Fn fn) {
  std::vector<double> t;
  for (int i = 0; i < rounds; ++i) {
    const double start = seconds();
    fn();
    t.push_back(seconds() - start);
  }
  std::sort(t.begin(), t.end());
  return {t[t.size() / 2], t[0]};
}

const OpTable& pick_table(const std::string& name) {
  for (const CpuIsa isa :
       {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    if (name == cpu_isa_name(isa)) return *cpu_ops(isa).value();
  }
  return *cpu_ops(best_cpu_isa()).value();
}

void report(const Options& o, const OpTable& table, const CallShape& s, const char* format,
            int64_t rows, size_t bytes, Times t, double stream) {
  const double gbs = static_cast<double>(bytes) / t.median * 1e-9;
  const double share = static_cast<double>(bytes) / t.least / stream;
  const double gflops = s.num_flops(rows) / t.least * 1e-9;
  if (o.json) {
    fmt::print(
        "{{\"bench\":\"linear\",\"isa\":\"{}\",\"threads\":{},\"model\":\"{}\",\"call\":\"{}\","
        "\"format\":\"{}\",\"rows\":{},"
        "\"bytes\":{},\"us\":{:.1f},\"us_min\":{:.1f},\"gb_per_s\":{:.2f},\"of_stream\":{:.3f},"
        "\"gflop_per_s\":{:.1f}}}\n",
        table.name, o.threads, s.model, s.name, format, rows, bytes, t.median * 1e6, t.least * 1e6,
        gbs, share, gflops);
    return;
  }
  fmt::print("{:5} {:9} {:4} {:5} {:11} {:10.1f} {:10.1f} {:7.2f} {:6.1f}% {:8.1f}\n", s.model,
             s.name, format, rows, bytes, t.median * 1e6, t.least * 1e6, gbs, share * 100, gflops);
}

void run(Options o) {
  use_cpu_time = o.cpu_time;
  ThreadPool pool(o.threads);
  o.threads = pool.num_threads();
  const OpTable& table = pick_table(o.isa);
  const int64_t rows_max = *std::max_element(o.rows.begin(), o.rows.end());
  // The widest output is the vocabulary, measured for few rows only.
  constexpr int64_t kWide = 40'000, kHeadRowsMax = 16;
  Operands operands(Buffer::create(o.buffer_mb << 20, "weights").value(),
                    std::max<int64_t>(rows_max, 100), kWide, o.misalign);
  OpDims dims;
  dims.hidden = 5120;
  dims.intermediate = 17408;
  dims.gdn = {.num_k_heads = 16, .num_v_heads = 48};
  dims.attention = {.num_heads = 24, .num_kv_heads = 4};
  dims.context_max = 1;
  dims.num_rows_max = rows_max;
  dims.num_threads = o.threads;
  Arena scratch = Arena::create(table.scratch_bytes(dims), "scratch").value();
  OpContext context{&pool, &scratch};

  const std::span<const std::byte> all = operands.weights();
  const auto read = [&](ReadPattern pattern) {
    return measure(7, [&] { read_all(pool, all, pattern); }).least;
  };
  const auto size = static_cast<double>(all.size());
  const double sequential = size / read(ReadPattern::kSequential);
  const double pages = size / read(ReadPattern::kSixteenPages);
  const double stream = std::max(sequential, pages);
  fmt::print("# {} threads, {}; stream {:.2f} GB/s sequential, {:.2f} in 16 pages\n", o.threads,
             table.name, sequential * 1e-9, pages * 1e-9);
  fmt::print(
      "# model call     fmt   rows       bytes         us     us_min    GB/s of stream  GFLOP/s\n");
  for (const CallShape& shape : call_shapes(o.model)) {
    if (!o.call.empty() && shape.name != o.call) continue;
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8Block128}) {
      const char* name = format == WeightFormat::kBf16 ? "bf16" : "fp8";
      if (o.formats.find(name) == std::string::npos) continue;
      const size_t bytes = shape.num_bytes(format);
      if (bytes > all.size()) continue;
      for (const int64_t rows : o.rows) {
        if (shape.name == "lm_head" && rows > kHeadRowsMax) continue;
        const Times t =
            measure(o.rounds, [&] { operands.run(table, context, shape, format, rows); });
        report(o, table, shape, name, rows, bytes, t, stream);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options o;
  CLI::App app("Measures the linears against the read bandwidth of the same run");
  app.add_option("--model", o.model, "tiny, 0.8B, 4B or 27B; all when left out");
  app.add_option("--call", o.call, "one call, e.g. gate_up");
  app.add_option("--isa", o.isa, "scalar, avx2, avx512, avx512bf16, amx or best");
  app.add_option("--formats", o.formats, "bf16, fp8 or both");
  app.add_option("--rows", o.rows, "row counts")->delimiter(',');
  app.add_option("--threads", o.threads, "0: one a core");
  app.add_option("--rounds", o.rounds, "measurements of each call");
  app.add_option("--buffer-mb", o.buffer_mb, "size of the buffer that weights rotate through");
  app.add_option("--misalign", o.misalign, "bytes past a page at which every weight starts");
  app.add_flag("--cpu-time", o.cpu_time,
               "the process's own time instead of the clock's, for one thread on a busy machine");
  app.add_flag("--json", o.json, "one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  sluice::bench::run(o);
  return 0;
}
