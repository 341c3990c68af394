#include "ops/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice {

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
    case CpuIsa::kAmx:
      return "amx";
  }
  check_failed(__FILE__, __LINE__, "an instruction set without a name");
}

#if defined(__x86_64__)
namespace {

struct CpuidRegs {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidRegs r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros beyond the last leaf
  return r;
}

bool has_bits(uint64_t word, std::initializer_list<int> bits) {
  for (const int bit : bits) {
    if ((word >> bit & 1u) == 0) return false;
  }
  return true;
}

/// Register files the kernel saves on a switch (XCR0); 0 without XSAVE.
uint64_t saved_state() {
  constexpr int kOsxsave = 27;
  if (!has_bits(cpuid(1, 0).ecx, {kOsxsave})) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool has_avx2() {
  // xmm 1, ymm 2; fma 12, f16c 29; avx2 5.
  return has_bits(saved_state(), {1, 2}) && has_bits(cpuid(1, 0).ecx, {12, 29}) &&
         has_bits(cpuid(7, 0).ebx, {5});
}

bool has_avx512() {
  // opmask 5, zmm_hi256 6, hi16_zmm 7; avx512 f 16, dq 17, bw 30, vl 31.
  return has_avx2() && has_bits(saved_state(), {5, 6, 7}) &&
         has_bits(cpuid(7, 0).ebx, {16, 17, 30, 31});
}

bool has_avx512_bf16() {
  return has_avx512() && has_bits(cpuid(7, 1).eax, {5});
}

/// Linux keeps the 8 KB of tile registers off until a process asks (kernel 5.16).
bool request_tile_registers() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

bool has_amx() {
  // xtilecfg 17, xtiledata 18; amx_bf16 22, amx_tile 24.
  return has_avx512_bf16() && has_bits(saved_state(), {17, 18}) &&
         has_bits(cpuid(7, 0).edx, {22, 24}) && request_tile_registers();
}

}  // namespace

bool cpu_isa_available(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return true;
    case CpuIsa::kAvx2:
      return has_avx2();
    case CpuIsa::kAvx512:
      return has_avx512();
    case CpuIsa::kAvx512Bf16:
      return has_avx512_bf16();
    case CpuIsa::kAmx:
      static const bool amx = has_amx();
      return amx;
  }
  return false;
}
#else
bool cpu_isa_available(CpuIsa isa) {
  return isa == CpuIsa::kScalar;
}
#endif

CpuIsa best_cpu_isa() {
  for (const CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (cpu_isa_available(isa)) return isa;
  }
  return CpuIsa::kScalar;
}

}  // namespace sluice
