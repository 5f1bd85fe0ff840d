# `cpack -G DEB` in the build folder: paceline, libpaceline1 and libpaceline-dev for Debian. A build for
# packages is configured with -DCMAKE_INSTALL_PREFIX=/usr, which puts the library where Debian has those
# of its architecture.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME paceline)
set(CPACK_PACKAGE_VENDOR Paceline)
set(CPACK_PACKAGE_CONTACT "The authors of Paceline <paceline@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks on commodity clusters")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL command library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Where the command's own library is, whose package is named below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})

set(library libpaceline${paceline_abi})
set(same_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME paceline)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "${library} ${same_version}")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "dataset-fashion-mnist")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION
  "The command paceline trains, simulates and plans on machines of different speed that join,
leave and fail, joined by gigabit Ethernet.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The shared library, for programs that train in their process.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libpaceline-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library} ${same_version}")
# Of programs that link the static library.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libdnnl-dev, libprotobuf-c-dev, libcjson-dev, \
libxxhash-dev, libcurl4-openssl-dev, libssl-dev, libjpeg62-turbo-dev, libpng-dev, zlib1g-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "Headers, the static library, and files for pkg-config and CMake.")
include(CPack)
