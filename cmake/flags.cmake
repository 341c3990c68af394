# Flags every target shares. Floating point stays strict: no -ffast-math anywhere, and no contraction,
# so that a fused multiply-add appears only where the source asks for one and bits do not depend on the optimiser.
add_library(sluice_flags INTERFACE)
set(cxx_flags -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Werror
  -ffp-contract=off -fno-math-errno)
target_compile_options(sluice_flags INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${cxx_flags}>")
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()
