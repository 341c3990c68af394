#pragma once
// More token counts of wgmma.cuh's instruction, for tiles of many tokens.

#include "ops/cuda/wgmma.cuh"

namespace sluice::cuda {

#define SLUICE_P0_31 SLUICE_P0 ", " SLUICE_P8 ", " SLUICE_P16 ", " SLUICE_P24
#define SLUICE_D4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define SLUICE_D24(c, d) SLUICE_D16(c, d, 0), SLUICE_D8(c, d, 16)
#define SLUICE_D36(c, d) SLUICE_D32(c, d, 0), SLUICE_D4(c, d, 32)
#define SLUICE_D40(c, d) SLUICE_D32(c, d, 0), SLUICE_D8(c, d, 32)
#define SLUICE_D44(c, d) SLUICE_D32(c, d, 0), SLUICE_D8(c, d, 32), SLUICE_D4(c, d, 40)
#define SLUICE_D52(c, d) SLUICE_D32(c, d, 0), SLUICE_D16(c, d, 32), SLUICE_D4(c, d, 48)

#define SLUICE_SUMS48 SLUICE_P0 ", " SLUICE_P8 ", " SLUICE_P16
#define SLUICE_OPS48 "{%24, %25, %26, %27}, %28"
#define SLUICE_OUT48(c) SLUICE_D24(c, d)
template <>
struct Wgmma<48> {
  SLUICE_WGMMA_ADD(48)
};
#define SLUICE_SUMS72 SLUICE_P0_31 ", %32, %33, %34, %35"
#define SLUICE_OPS72 "{%36, %37, %38, %39}, %40"
#define SLUICE_OUT72(c) SLUICE_D36(c, d)
template <>
struct Wgmma<72> {
  SLUICE_WGMMA_ADD(72)
};
#define SLUICE_SUMS80 SLUICE_P0_31 ", " SLUICE_P32
#define SLUICE_OPS80 "{%40, %41, %42, %43}, %44"
#define SLUICE_OUT80(c) SLUICE_D40(c, d)
template <>
struct Wgmma<80> {
  SLUICE_WGMMA_ADD(80)
};
#define SLUICE_SUMS88 SLUICE_P0_31 ", " SLUICE_P32 ", %40, %41, %42, %43"
#define SLUICE_OPS88 "{%44, %45, %46, %47}, %48"
#define SLUICE_OUT88(c) SLUICE_D44(c, d)
template <>
struct Wgmma<88> {
  SLUICE_WGMMA_ADD(88)
};
#define SLUICE_SUMS104 SLUICE_P0_31 ", " SLUICE_P32 ", " SLUICE_P40 ", %48, %49, %50, %51"
#define SLUICE_OPS104 "{%52, %53, %54, %55}, %56"
#define SLUICE_OUT104(c) SLUICE_D52(c, d)
template <>
struct Wgmma<104> {
  SLUICE_WGMMA_ADD(104)
};
#define SLUICE_SUMS128 SLUICE_P0_31 ", " SLUICE_P32 ", " SLUICE_P40 ", " SLUICE_P48 ", " SLUICE_P56
#define SLUICE_OPS128 "{%64, %65, %66, %67}, %68"
#define SLUICE_OUT128(c) SLUICE_D64(c, d, 0)
template <>
struct Wgmma<128> {
  SLUICE_WGMMA_ADD(128)
};

}  // namespace sluice::cuda
