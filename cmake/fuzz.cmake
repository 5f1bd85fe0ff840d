# test/fuzz: readers against untrusted bytes. With gcc, or without PACELINE_FUZZ, each
# target plays its committed corpus as a test; with it, clang's libFuzzer finds new ones
# (scripts/fuzz.sh).
option(PACELINE_FUZZ "Fuzzers out of test/fuzz: needs clang, and builds them alone" OFF)

set(fuzz_root ${PROJECT_SOURCE_DIR}/test/fuzz)
set(fuzz_support files judge fuzz_memory nets pictures)
set(fuzz_wraps malloc calloc realloc aligned_alloc)
set(fuzz_file_wraps file_read file_read_watched file_open file_close file_part file_is_folder file_is_regular)
if(PACELINE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PACELINE_FUZZ: libFuzzer is clang's; configure with CC=clang")
  endif()
  target_compile_options(paceline_flags INTERFACE -fsanitize=fuzzer-no-link)
  # The probe of the machine's peak has clones that clang cannot make, and reads nothing.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tensor/peak.c PROPERTIES
    HEADER_FILE_ONLY ON)
  # Arithmetic reads nothing, and clang takes minutes over its loops with all that counts in them.
  set_property(SOURCE ${arithmetic_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
  # The distance of words, compared letter by letter, would be half of a run's comparisons.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/job/text_field.c PROPERTIES
    COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
endif()
add_custom_target(fuzzers)

function(fuzz_target source)
  get_filename_component(target ${source} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" name ${target})
  set(support ${fuzz_support})
  set(wraps ${fuzz_wraps})
  if(NOT name STREQUAL gzip) # which is about the disk
    list(APPEND wraps ${fuzz_file_wraps})
  endif()
  if(NOT PACELINE_FUZZ)
    list(APPEND support replay)
  elseif(name MATCHES "^(job|prototxt|solver)$")
    list(APPEND support words)
  endif()
  list(TRANSFORM support PREPEND ${fuzz_root}/support/)
  list(TRANSFORM support APPEND .c)
  list(TRANSFORM wraps PREPEND LINKER:--wrap=)
  add_executable(${target} ${source} ${support})
  target_include_directories(${target} PRIVATE ${fuzz_root})
  target_link_libraries(${target} PRIVATE paceline_core ZLIB::ZLIB m)
  if(name STREQUAL "frame")
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/real/frame.c)
  elseif(name STREQUAL "page") # of the command only what serves pages: the linker picks from a library
    add_library(fuzz_command STATIC EXCLUDE_FROM_ALL
      $<FILTER:$<TARGET_OBJECTS:paceline_command>,EXCLUDE,/main\\.c>)
    set_target_properties(fuzz_command PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE fuzz_command paceline PkgConfig::CJSON
      PkgConfig::MICROHTTPD OpenSSL::Crypto)
  endif()
  target_link_options(${target} PRIVATE ${wraps})
  add_dependencies(fuzzers ${target})
  if(PACELINE_FUZZ)
    target_compile_definitions(${target} PRIVATE FUZZER)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    add_test(NAME fuzz/${name} COMMAND ${target} ${fuzz_root}/corpus/${name})
    set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 120 LABELS fuzz PROCESSORS 2)
  endif()
endfunction()

file(GLOB fuzz_sources CONFIGURE_DEPENDS ${fuzz_root}/fuzz_*.c)
foreach(source ${fuzz_sources})
  fuzz_target(${source})
endforeach()
