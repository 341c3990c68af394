# The CPU backend. Included by src/ops/CMakeLists.txt; adds to sluice_ops:
#   - plain sources, compiled for the baseline of the architecture;
#   - one object library an instruction set, compiled with that set's -m flags and with SLUICE_CPU_NS naming its
#     namespace (cpu_scalar, cpu_avx2, ...). A .cc listed under several sets is compiled once for each.
# Baseline objects come first: an inline function that several objects share is then taken from the baseline, so code
# built for a stronger set never runs before the dispatch has asked for it.

set(cpu_plain_sources cpu/isa.cc cpu/cpu_ops.cc cpu/linear_bounds.cc)
set(cpu_scalar_sources cpu/linear_scalar.cc)
set(cpu_avx2_sources cpu/linear_vec.cc)
set(cpu_avx512_sources cpu/linear_vec.cc)
set(cpu_avx512bf16_sources cpu/linear_vec.cc)
set(cpu_amx_sources cpu/linear_amx.cc)
include(cpu/other_sources.cmake OPTIONAL)

function(sluice_cpu_isa isa)
  cmake_parse_arguments(ARG "" "" "FLAGS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_library(sluice_ops_${isa} OBJECT ${ARG_SOURCES})
  target_include_directories(sluice_ops_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(sluice_ops_${isa} PRIVATE SLUICE_CPU_NS=${isa})
  # GCC 12 takes its own _mm512_undefined_* for a mistake of ours.
  target_compile_options(sluice_ops_${isa} PRIVATE ${ARG_FLAGS} "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
  target_link_libraries(sluice_ops_${isa} PRIVATE sluice_flags fmt::fmt)
  target_sources(sluice_ops PRIVATE $<TARGET_OBJECTS:sluice_ops_${isa}>)
endfunction()

target_sources(sluice_ops PRIVATE ${cpu_plain_sources})
sluice_cpu_isa(cpu_scalar SOURCES ${cpu_scalar_sources})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  set(avx512bf16 ${avx512} -mavx512bf16)
  set(amx ${avx512bf16} -mamx-tile -mamx-bf16)
  sluice_cpu_isa(cpu_avx2 FLAGS ${avx2} SOURCES ${cpu_avx2_sources})
  sluice_cpu_isa(cpu_avx512 FLAGS ${avx512} SOURCES ${cpu_avx512_sources})
  sluice_cpu_isa(cpu_avx512bf16 FLAGS ${avx512bf16} SOURCES ${cpu_avx512bf16_sources})
  sluice_cpu_isa(cpu_amx FLAGS ${amx} SOURCES ${cpu_amx_sources})
endif()
