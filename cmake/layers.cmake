# One archive holds everything that both worlds share; real and sim are an archive each, so that the
# linker, too, sees that the protocols know neither.
set(core_folders base job world tensor wire nn data group coll kv optim model learner plan strategy train)

# Sources of a folder, its tests apart.
function(folder_sources folder out)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "_test\\.c$")
  if(NOT PACELINE_UCX)
    list(FILTER sources EXCLUDE REGEX "/real/ucx\\.c$")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

set(core_sources)
foreach(folder ${core_folders})
  folder_sources(${folder} sources)
  list(APPEND core_sources ${sources})
endforeach()

add_library(paceline_core STATIC ${core_sources})
target_link_libraries(paceline_core
  PUBLIC paceline_flags paceline_schemas PkgConfig::CJSON
  PRIVATE PkgConfig::XXHASH ZLIB::ZLIB JPEG::JPEG PNG::PNG ${DNNL_LIBRARY} OpenMP::OpenMP_C m)

# The probe of the machine's peak writes no weight: there alone products and sums may be fused. The
# code that chooses among its clones runs before the thread sanitizer is initialised.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tensor/peak.c PROPERTIES
  COMPILE_OPTIONS "-ffp-contract=fast;-fno-sanitize=thread")

# The loops over vectors, compiled again for each wider instruction set; vec_kernels.c knows which one the
# processor has. They may differ in width alone: none of them fuses, so all give the same bits.
# A square root that may not set errno is one instruction, and so can be as wide as the others.
set(vec_loops ${PROJECT_SOURCE_DIR}/src/tensor/vec_loops.c)
set_source_files_properties(${vec_loops} PROPERTIES COMPILE_OPTIONS -fno-math-errno)
# Floating-point traps are not used, and a loop that may compute unused values needs no branch: it is
# ten times as fast, and as exact.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tensor/kernels_common.c
  ${PROJECT_SOURCE_DIR}/src/tensor/broadcast.c PROPERTIES COMPILE_OPTIONS -fno-trapping-math)
function(vec_loops_for isa text)
  add_library(vec_loops_${isa} OBJECT ${vec_loops})
  target_compile_definitions(vec_loops_${isa} PRIVATE
    VEC_KERNELS=vec_kernels_${isa} VEC_KERNELS_ISA="${text}")
  target_compile_options(vec_loops_${isa} PRIVATE ${ARGN})
  target_link_libraries(vec_loops_${isa} PRIVATE paceline_flags)
endfunction()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  vec_loops_for(avx2 AVX2 -mavx2)
  vec_loops_for(avx512 AVX-512 -mavx512f -mavx512vl -mprefer-vector-width=512)
  target_sources(paceline_core PRIVATE
    $<TARGET_OBJECTS:vec_loops_avx2> $<TARGET_OBJECTS:vec_loops_avx512>)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tensor/vec_kernels.c PROPERTIES
    COMPILE_DEFINITIONS VEC_KERNELS_X86)
  set(fused_isa -mavx2 -mfma) # for a test, below
endif()

# Loops that make activations and gradients, never a weight, may fuse products and sums (D8). A file
# of them is compiled once for each instruction set (src/tensor/isa_loops.h).
set(gradient_options -ffp-contract=fast -fno-math-errno -fno-trapping-math)
set(gradient_isa_avx2 -mavx2 -mfma)
set(gradient_isa_avx512 -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma -mprefer-vector-width=512)
# `loops` is the file's name, or that and _bf16.
function(gradient_loops_for isa loops file)
  add_library(${loops}_${isa} OBJECT ${file})
  target_compile_definitions(${loops}_${isa} PRIVATE ISA_SUFFIX=${isa} ${ARGN})
  target_compile_options(${loops}_${isa} PRIVATE ${gradient_isa_${isa}})
  target_link_libraries(${loops}_${isa} PRIVATE paceline_flags)
  target_sources(paceline_core PRIVATE $<TARGET_OBJECTS:${loops}_${isa}>)
endfunction()
set(gradient_isas)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(gradient_isas avx2 avx512)
endif()
function(gradient_loops name)
  set(file ${PROJECT_SOURCE_DIR}/src/tensor/${name}.c)
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${gradient_options}")
  foreach(isa ${gradient_isas})
    gradient_loops_for(${isa} ${name} ${file})
  endforeach()
endfunction()
# The same, and again for values of bf16.
function(values_loops name)
  gradient_loops(${name})
  foreach(isa plain ${gradient_isas})
    gradient_loops_for(${isa} ${name}_bf16 ${PROJECT_SOURCE_DIR}/src/tensor/${name}.c
      ISA_VALUES_BF16)
  endforeach()
endfunction()
# Those of resampling, which do not fuse.
foreach(isa ${gradient_isas})
  gradient_loops_for(${isa} resample_loops ${PROJECT_SOURCE_DIR}/src/tensor/resample_loops.c)
endforeach()
gradient_loops(bf16_loops)
values_loops(norm_loops)
gradient_loops(lrn_loops)
values_loops(pool_loops)
gradient_loops(winograd_filters)
values_loops(winograd_loops)
gradient_loops(winograd_products)
gradient_loops(product_loops)
gradient_loops(gate_loops)
gradient_loops(softmax_loops)
values_loops(relu_loops)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_compile_definitions(paceline_core PRIVATE ISA_TABLES_X86)
endif()

foreach(world real sim)
  folder_sources(${world} sources)
  if(sources)
    add_library(paceline_${world} STATIC ${sources})
    target_link_libraries(paceline_${world} PUBLIC paceline_core Threads::Threads)
  endif()
endforeach()
target_link_libraries(paceline_real PRIVATE PkgConfig::CURL OpenSSL::SSL)
if(PACELINE_UCX)
  target_compile_definitions(paceline_real PUBLIC PACELINE_UCX)
  target_link_libraries(paceline_real PRIVATE PkgConfig::UCX)
endif()

folder_sources(api sources)
if(sources)
  add_library(paceline STATIC ${sources})
  target_include_directories(paceline PUBLIC include)
  target_link_libraries(paceline PRIVATE paceline_core)
  foreach(world real sim)
    if(TARGET paceline_${world})
      target_link_libraries(paceline PRIVATE paceline_${world})
    endif()
  endforeach()
endif()

folder_sources(cli sources)
if(sources)
  # The command sees the public headers and nothing else. Its objects are in two programs of tests,
  # too.
  set(page ${PROJECT_SOURCE_DIR}/src/cli/page)
  set(page_files ${CMAKE_BINARY_DIR}/gen/cli/page_files.c)
  add_custom_command(OUTPUT ${page_files}
    COMMAND ${CMAKE_COMMAND} "-DFILES=page_css=${page}/page.css;page_js=${page}/page.js"
            -DOUT=${page_files} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${page}/page.css ${page}/page.js ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  add_library(paceline_command OBJECT ${sources} ${page_files})
  target_compile_definitions(paceline_command PRIVATE _POSIX_C_SOURCE=200809L)
  target_compile_options(paceline_command PRIVATE
    $<TARGET_PROPERTY:paceline_flags,INTERFACE_COMPILE_OPTIONS>)
  target_include_directories(paceline_command PRIVATE src) # its own headers: test/layering.sh watches
  target_link_libraries(paceline_command PRIVATE paceline PkgConfig::CJSON PkgConfig::MICROHTTPD PNG::PNG
    OpenSSL::Crypto)
  add_executable(paceline_cli $<TARGET_OBJECTS:paceline_command>)
  set_target_properties(paceline_cli PROPERTIES OUTPUT_NAME paceline LINKER_LANGUAGE C)
  target_link_options(paceline_cli PRIVATE $<TARGET_PROPERTY:paceline_flags,INTERFACE_LINK_OPTIONS>)
  target_link_libraries(paceline_cli PRIVATE paceline PkgConfig::CJSON PkgConfig::MICROHTTPD PNG::PNG
    OpenSSL::Crypto Threads::Threads m)
endif()

# Each of the examples in C is a program of its name, and sees the public headers alone.
file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(example ${examples})
  get_filename_component(name ${example} NAME_WE)
  add_executable(${name} ${example})
  target_compile_options(${name} PRIVATE
    $<TARGET_PROPERTY:paceline_flags,INTERFACE_COMPILE_OPTIONS>)
  target_link_options(${name} PRIVATE $<TARGET_PROPERTY:paceline_flags,INTERFACE_LINK_OPTIONS>)
  target_link_libraries(${name} PRIVATE paceline)
endforeach()

if(PkgConfig_FOUND AND TARGET PkgConfig::CMOCKA)
  enable_testing()
  # Unit and conformance tests lie beside their file: foo_test.c is one program.
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/*_test.c
       ${PROJECT_SOURCE_DIR}/test/golden/*_test.c ${PROJECT_SOURCE_DIR}/test/sim/*_test.c
       ${PROJECT_SOURCE_DIR}/test/process/*_test.c)
  if(NOT PACELINE_UCX)
    list(FILTER tests EXCLUDE REGEX "/real/ucx_test\\.c$")
  endif()
  if(NOT TARGET PkgConfig::LMDB)
    message(FATAL_ERROR "the tests need liblmdb (liblmdb-dev), which the product does not")
  endif()
  string(CONCAT waiting "^process/(asynchronous|bench|confined|driver_cmd|driver_recovery|failing_calls|faults"
    "|http_data|join_real|mpirun|own_records|own_streams|proxy_run|remote_worker"
    "|run_output_process|signals|team_process)_test$")
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    get_filename_component(folder ${test} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    set(target ${folder}_${name})
    add_executable(${target} ${test})
    # Compiled for longer than they run; this level of optimization knows too little of values for
    # two of the warnings.
    target_compile_options(${target} PRIVATE -O1 -Wno-maybe-uninitialized -Wno-format-truncation)
    if(PACELINE_SANITIZE AND NOT folder MATCHES "^(tensor|nn|learner|golden)$") # these compute
      set_property(SOURCE ${test} APPEND PROPERTY COMPILE_OPTIONS -O0)
    endif()
    target_include_directories(${target} PRIVATE include ${PROJECT_SOURCE_DIR}/test/lib)
    target_compile_definitions(${target} PRIVATE
      TEST_ROOT="${PROJECT_SOURCE_DIR}" TEST_BUILD="${CMAKE_BINARY_DIR}")
    if(TARGET paceline)
      target_link_libraries(${target} PRIVATE paceline)
    endif()
    target_link_libraries(${target} PRIVATE paceline_core PkgConfig::CMOCKA Threads::Threads m)
    foreach(world real sim)
      if(TARGET paceline_${world})
        target_link_libraries(${target} PRIVATE paceline_${world})
      endif()
    endforeach()
    add_test(NAME ${folder}/${name} COMMAND ${target})
    # A test computes the same on every machine: no choice depends on a measurement.
    set_tests_properties(${folder}/${name} PROPERTIES TIMEOUT 900 LABELS ${folder}
      ENVIRONMENT PACELINE_TUNER=off)
    # Half cores, for `ctest -j 5` on two cores. Some tests mostly wait for processes: they come last
    # in the list, and run one by one beside two others. Others compute on all cores: beside another
    # one of them, each parallel loop would wait for a core. Alone, a thread that waits for the next
    # loop may keep its core.
    set(cost 1)
    if("${folder}/${name}" MATCHES "${waiting}")
      set(half_cores 1)
      set(cost 0)
    elseif(folder MATCHES "^(tensor|nn|learner|golden)$" OR name STREQUAL "bench_step_test")
      set(half_cores 4)
      set_tests_properties(${folder}/${name} PROPERTIES
        ENVIRONMENT_MODIFICATION OMP_WAIT_POLICY=unset:)
    else()
      set(half_cores 2)
    endif()
    set_tests_properties(${folder}/${name} PROPERTIES PROCESSORS ${half_cores} COST ${cost})
  endforeach()

  target_link_libraries(data_source_lmdb_test PRIVATE PkgConfig::LMDB)

  # Seeds of faults in simulation (test/storm/README.md): a share of them here, a smaller one under
  # sanitizers, all of them in ./run check --all.
  set(storm_share 200)
  if(PACELINE_SANITIZE)
    set(storm_share 50)
  endif()
  file(GLOB storm CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/storm/*.c)
  add_executable(storm ${storm})
  target_link_libraries(storm PRIVATE paceline_sim paceline_real paceline_core Threads::Threads m)
  add_test(NAME storm/share COMMAND storm --seeds ${storm_share})
  set_tests_properties(storm/share PROPERTIES TIMEOUT 900 LABELS storm PROCESSORS 2)

  # vec_isa_test sees that it can fail: the same loops, but fused, as a compiler does if left alone.
  add_library(vec_loops_fused OBJECT ${vec_loops})
  target_include_directories(vec_loops_fused PRIVATE src)
  target_compile_definitions(vec_loops_fused PRIVATE
    VEC_KERNELS=vec_kernels_fused VEC_KERNELS_ISA="fused")
  target_compile_options(vec_loops_fused PRIVATE -O3 ${fused_isa} -ffp-contract=fast)
  target_sources(tensor_vec_isa_test PRIVATE $<TARGET_OBJECTS:vec_loops_fused>)

  # The command's own files are in no library: a test of one names the files that it needs.
  target_sources(cli_progress_line_test PRIVATE src/cli/progress_line.c)
  target_sources(cli_host_address_test PRIVATE src/cli/host_address.c)
  target_sources(cli_ranks_test PRIVATE src/cli/ranks.c src/cli/predict_slices.c
    src/cli/key_option.c src/cli/secret_heap.c src/cli/host_address.c)
  target_sources(cli_wrap_line_test PRIVATE src/cli/wrap_line.c)
  target_sources(cli_output_test PRIVATE src/cli/output.c src/cli/progress_line.c
    src/cli/wrap_line.c)
  target_sources(cli_run_output_test PRIVATE src/cli/run_output.c src/cli/banner.c src/cli/number.c
    src/cli/workers_file.c src/cli/output.c src/cli/progress_line.c src/cli/wrap_line.c
    src/cli/signals.c)
  target_sources(cli_workers_test PRIVATE src/cli/workers.c src/cli/worker_relay.c
    src/cli/output.c src/cli/progress_line.c src/cli/wrap_line.c)

  target_sources(cli_run_summary_test PRIVATE src/cli/run_summary.c src/cli/run_series.c src/cli/run_hosts.c
    src/cli/json_write.c)
  target_sources(cli_run_hosts_test PRIVATE src/cli/run_hosts.c src/cli/json_write.c)
  target_sources(cli_trace_summary_test PRIVATE src/cli/trace_summary.c src/cli/trace_window.c
                 src/cli/job_fields.c)

  # Pages, in a browser where there is one, and their server.
  find_package(Python3 COMPONENTS Interpreter)
  foreach(test report png browser live follow strangers)
    add_test(NAME page/${test}_test COMMAND ${Python3_EXECUTABLE}
      ${PROJECT_SOURCE_DIR}/test/page/${test}_test.py ${CMAKE_BINARY_DIR})
    set_tests_properties(page/${test}_test PROPERTIES TIMEOUT 300 LABELS page PROCESSORS 2
      ENVIRONMENT "PACELINE_TUNER=off;OMP_WAIT_POLICY=passive;PYTHONDONTWRITEBYTECODE=1")
  endforeach()

  # Commands and calls whose net fails an assertion on request: tests of the handling of bugs.
  target_link_options(api_guard_test PRIVATE LINKER:--wrap=net_begin_forward)
  add_executable(paceline_breaks $<TARGET_OBJECTS:paceline_command> test/process/breaks.c)
  target_include_directories(paceline_breaks PRIVATE include)
  target_link_libraries(paceline_breaks PRIVATE paceline paceline_core PkgConfig::CJSON
    PkgConfig::MICROHTTPD PNG::PNG)
  target_link_options(paceline_breaks PRIVATE LINKER:--wrap=net_begin_forward)
  add_dependencies(process_bug_test paceline_breaks)

  # A faulty network, and a driver alone, for tests and measurements of lost machines (bench/faults).
  add_executable(paceline_proxy test/proxy/proxy.c test/proxy/flow.c)
  target_link_libraries(paceline_proxy PRIVATE paceline_flags)
  add_executable(paceline_stage test/proxy/stage.c)
  target_link_libraries(paceline_stage PRIVATE paceline_flags paceline)
  foreach(test proxy proxy_run driver_cmd)
    add_dependencies(process_${test}_test paceline_proxy paceline_stage)
  endforeach()

  add_dependencies(process_confined_test confined_worker)

  # Counts allocations of the command (bench_step_test).
  add_library(count_malloc MODULE test/process/count_malloc.c)
  target_link_libraries(count_malloc PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(process_bench_step_test count_malloc)

  # Makes a call of the command's fail (failing_calls_test).
  add_library(fail_call MODULE test/process/fail_call.c)
  target_link_libraries(fail_call PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(process_failing_calls_test fail_call)

  # Delays the records of one worker.
  add_library(slow_open MODULE bench/faults/slow_open.c)
  target_link_libraries(slow_open PRIVATE ${CMAKE_DL_LIBS})
  if(NOT PACELINE_SANITIZE) # which preloads nothing
    add_test(NAME process/blame_real_test COMMAND ${Python3_EXECUTABLE}
      ${PROJECT_SOURCE_DIR}/test/process/blame_real.py ${CMAKE_BINARY_DIR})
    set_tests_properties(process/blame_real_test PROPERTIES TIMEOUT 300 LABELS process PROCESSORS 2
      ENVIRONMENT "PACELINE_TUNER=off;OMP_WAIT_POLICY=passive;PYTHONDONTWRITEBYTECODE=1")
  endif()

  # Simulated runs that judge each worker's own model beside the joint one (test/lib/own_models.h):
  # a test, and a second copy of the command, which bench/bn_strategies.py runs.
  set(own_wraps learner_gradient learner_update learner_step objectives_evaluate)
  list(TRANSFORM own_wraps PREPEND LINKER:--wrap=)
  target_link_options(sim_batch_norm_test PRIVATE ${own_wraps})
  add_executable(paceline_own $<TARGET_OBJECTS:paceline_command> bench/bn_own.c)
  target_include_directories(paceline_own PRIVATE include test/lib)
  target_link_libraries(paceline_own PRIVATE paceline paceline_core PkgConfig::CJSON
    PkgConfig::MICROHTTPD PNG::PNG m)
  target_link_options(paceline_own PRIVATE ${own_wraps})
endif()
