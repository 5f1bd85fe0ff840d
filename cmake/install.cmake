# What `cmake --install` and the packages have: the shared and the static library, headers, the files
# by which pkg-config and CMake find them, the command, its pages and completions. A build with
# sanitizers installs nothing: their runtime cannot be loaded into other programs.
set(install_tests install_files install_pkg_config install_cmake packages hardening python_run
  python_net python_interrupt python_torch python_wheel)
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
if(NOT TARGET paceline OR PACELINE_SANITIZE OR PACELINE_FUZZ)
  if(NOT PACELINE_FUZZ AND TARGET PkgConfig::CMOCKA)
    foreach(test ${install_tests})
      add_test(NAME package/${test}_test COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] ${test}")
    endforeach()
  endif()
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(installed ${CMAKE_BINARY_DIR}/installed)

# The number of the binary interface (docs/STYLE.md, "Public structs"): it changes when a program that
# was built with older headers would break, which scripts/headers.py finds.
set(paceline_abi 1)

# Functions of the public headers, and no other name: a program may have an own net_create.
set(paceline_map ${PROJECT_SOURCE_DIR}/cmake/paceline.map)
add_library(paceline_shared SHARED $<TARGET_OBJECTS:paceline>)
set_target_properties(paceline_shared PROPERTIES
  OUTPUT_NAME paceline EXPORT_NAME paceline LINKER_LANGUAGE C LINK_DEPENDS ${paceline_map}
  SOVERSION ${paceline_abi} VERSION ${paceline_abi}.${PROJECT_VERSION})
target_include_directories(paceline_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(paceline_shared PRIVATE paceline_real paceline_sim paceline_core)
# nodelete: a host that unloads the library does not unmap code that threads of OpenMP are in.
target_link_options(paceline_shared PRIVATE
  $<TARGET_PROPERTY:paceline_flags,INTERFACE_LINK_OPTIONS>
  LINKER:--version-script=${paceline_map} LINKER:-z,nodelete LINKER:-z,defs)

# One object with everything in it, in which all other names are local, too.
set(static_library ${installed}/libpaceline.a)
set(static_parts paceline paceline_real paceline_sim paceline_core paceline_schemas)
set(static_files ${static_parts})
list(TRANSFORM static_files REPLACE "(.+)" "$<TARGET_FILE:\\1>")
add_custom_command(
  OUTPUT ${static_library}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${installed}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -Wl,-d -o ${installed}/paceline.o
          -Wl,--whole-archive ${static_files} -Wl,--no-whole-archive
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --wildcard "--keep-global-symbol=pl_*" ${installed}/paceline.o
  COMMAND ${CMAKE_AR} rcs ${static_library} ${installed}/paceline.o
  DEPENDS ${static_parts}
  VERBATIM)
add_custom_target(paceline_static ALL DEPENDS ${static_library})

# The command, with the shared library. build/paceline has the library in it.
add_executable(paceline_installed $<TARGET_OBJECTS:paceline_command>)
file(RELATIVE_PATH library_from_command /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(paceline_installed PROPERTIES OUTPUT_NAME paceline LINKER_LANGUAGE C
  RUNTIME_OUTPUT_DIRECTORY ${installed} INSTALL_RPATH "$ORIGIN/${library_from_command}")
target_link_libraries(paceline_installed PRIVATE paceline_shared PNG::PNG PkgConfig::CJSON
  PkgConfig::MICROHTTPD OpenSSL::Crypto Threads::Threads m)

# Pages of the manual and completions, from what the command says of itself.
set(manual ${installed}/manual)
add_custom_command(
  OUTPUT ${manual}/bash/paceline ${manual}/zsh/_paceline
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/manual.sh $<TARGET_FILE:paceline_cli> ${manual}
  DEPENDS paceline_cli ${PROJECT_SOURCE_DIR}/scripts/manual.sh
          ${PROJECT_SOURCE_DIR}/scripts/manual.awk
  VERBATIM)
add_custom_target(paceline_manual ALL DEPENDS ${manual}/bash/paceline)

# Programs that link the static library name what it needs.
set(PACELINE_STATIC_NEEDS dnnl protobuf-c cjson xxhash curl ssl crypto jpeg png z gomp m pthread)
if(PACELINE_UCX)
  list(APPEND PACELINE_STATIC_NEEDS ucp ucs)
endif()
string(JOIN " -l" PACELINE_STATIC_LIBRARIES ${PACELINE_STATIC_NEEDS})
file(RELATIVE_PATH PACELINE_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/paceline.pc.in ${installed}/paceline.pc @ONLY)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/paceline)
configure_package_config_file(cmake/paceline-config.cmake.in ${installed}/paceline-config.cmake
  INSTALL_DESTINATION ${config_folder} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${installed}/paceline-config-version.cmake
  COMPATIBILITY SameMinorVersion)

install(TARGETS paceline_shared EXPORT paceline-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  NAMELINK_COMPONENT development)
install(TARGETS paceline_installed DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/paceline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${installed}/paceline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
install(FILES ${installed}/paceline-config.cmake ${installed}/paceline-config-version.cmake
  DESTINATION ${config_folder} COMPONENT development)
install(EXPORT paceline-targets NAMESPACE paceline:: DESTINATION ${config_folder}
  COMPONENT development)
install(DIRECTORY ${manual}/man1 ${manual}/man7 DESTINATION ${CMAKE_INSTALL_MANDIR}
  COMPONENT command)
install(FILES ${manual}/bash/paceline
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
# Zsh of Debian looks into the second folder for packages, and for nothing below /usr/local.
set(zsh_folder site-functions)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(zsh_folder vendor-completions)
endif()
install(FILES ${manual}/zsh/_paceline DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder}
  COMPONENT command)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/paceline/examples
  COMPONENT command FILES_MATCHING
  PATTERN "*.job" PATTERN "*.cluster" PATTERN "*.service" PATTERN "*.sbatch" PATTERN "*.json"
  PATTERN data EXCLUDE PATTERN spark EXCLUDE)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libpaceline-dev/examples
  COMPONENT development FILES_MATCHING PATTERN "*.c" PATTERN "*.cpp"
  PATTERN data EXCLUDE PATTERN spark EXCLUDE PATTERN slurm EXCLUDE PATTERN systemd EXCLUDE)
foreach(package "command;paceline" "library;libpaceline${paceline_abi}" "development;libpaceline-dev")
  list(POP_FRONT package component)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright
    COMPONENT ${component})
endforeach()

include(cmake/packages.cmake)

if(TARGET PkgConfig::CMOCKA)
  foreach(test ${install_tests})
    if(test MATCHES "^python_(.*)$")
      add_test(NAME package/${test}_test COMMAND
        ${PROJECT_SOURCE_DIR}/test/python/run.sh ${CMAKE_BINARY_DIR} ${CMAKE_MATCH_1}_test)
    elseif(test MATCHES "^install_(.*)$")
      add_test(NAME package/${test}_test COMMAND
        ${PROJECT_SOURCE_DIR}/test/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_MATCH_1})
    else()
      add_test(NAME package/${test}_test COMMAND
        ${PROJECT_SOURCE_DIR}/test/${test}.sh ${CMAKE_BINARY_DIR})
    endif()
    set_tests_properties(package/${test}_test PROPERTIES TIMEOUT 900 LABELS package PROCESSORS 2
      ENVIRONMENT "PACELINE_TUNER=off;OMP_WAIT_POLICY=passive")
  endforeach()
endif()
