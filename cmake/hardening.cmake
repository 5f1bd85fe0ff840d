# What compilers and linkers offer against mistakes with memory, for every file of Paceline and for all
# that it links: test/hardening.sh looks for it in the built files.
#
#   PIE, -z relro, now    addresses are drawn at random, and tables of them cannot be written
#   stack protector       a buffer's overflow is noticed before its function returns
#   stack clash           a large frame cannot step over the guard page
#   _FORTIFY_SOURCE=3     calls of the C library are checked against the size of what they write
#   CET, BTI              indirect calls reach beginnings of functions only. No shadow stacks: a
#                         simulation's tasks continue on stacks of their own (sim/coroutine_fibre.c)
#
# Builds with sanitizers check more of this themselves, and some of it would hide from them.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported()

target_compile_options(paceline_flags INTERFACE -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(branch_option -fcf-protection=branch)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(branch_option -mbranch-protection=bti)
endif()
foreach(option -fstack-clash-protection ${branch_option})
  string(MAKE_C_IDENTIFIER "has${option}" known)
  check_c_compiler_flag(${option} ${known})
  if(${known})
    target_compile_options(paceline_flags INTERFACE ${option})
  endif()
endforeach()
if(NOT PACELINE_SANITIZE)
  # It needs optimization. A compiler that defines a lower level itself warns of two.
  target_compile_options(paceline_flags INTERFACE
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()
target_link_options(paceline_flags INTERFACE
  LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
