# Everything of the CPU backend that is no linear; included by sources.cmake.
set(cpu_other_sources cpu/embed.cc cpu/norm.cc cpu/conv1d.cc cpu/gdn_gates.cc cpu/gdn_step.cc cpu/gdn_chunk.cc
  cpu/attention_prepare.cc cpu/attention.cc)
list(APPEND cpu_plain_sources cpu/gdn_bounds.cc cpu/attention_bounds.cc)
list(APPEND cpu_scalar_sources ${cpu_other_sources})
list(APPEND cpu_avx2_sources ${cpu_other_sources})
list(APPEND cpu_avx512_sources ${cpu_other_sources})
list(APPEND cpu_amx_sources cpu/attention.cc)
