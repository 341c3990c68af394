# Is the CUDA backend built, and for which GPUs? nvcc alone is enough to build it; a GPU is looked for again at run time.
#   OFF    no
#   ON     yes; without nvcc an error
#   NVCC   where nvcc is found
#   AUTO   where nvcc and a GPU are found
# SLUICE_CUDA_ARCHITECTURES: as CMAKE_CUDA_ARCHITECTURES; empty: the GPU of this machine, or 90a.
set(SLUICE_CUDA_ARCHITECTURES "" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES; empty: this machine's GPU")
set(SLUICE_WITH_CUDA OFF)

# The architecture of GPU 0 (90 as 90a, whose wgmma is not of 90), or empty.
function(sluice_find_gpu result)
  execute_process(COMMAND nvidia-smi --id=0 --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capability OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  set(${result} "" PARENT_SCOPE)
  if(NOT failed AND capability MATCHES "^([0-9]+)\\.([0-9])$")
    set(architecture ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
    string(REGEX REPLACE "^90$" "90a" architecture ${architecture})
    set(${result} ${architecture}-real PARENT_SCOPE)
  endif()
endfunction()

if(NOT SLUICE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  sluice_find_gpu(gpu)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE)
    if(SLUICE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "SLUICE_CUDA is ON and there is no nvcc; install the CUDA toolkit or use AUTO")
    endif()
  elseif(gpu OR NOT SLUICE_CUDA STREQUAL "AUTO")
    set(SLUICE_WITH_CUDA ON)
  endif()
endif()

if(SLUICE_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  if(SLUICE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${SLUICE_CUDA_ARCHITECTURES})
  elseif(gpu)
    set(CMAKE_CUDA_ARCHITECTURES ${gpu})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  enable_language(CUDA)
  # CMake 3.25.1 does not know how nvcc is told this dialect.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--fmad=false -Werror all-warnings>")
endif()
