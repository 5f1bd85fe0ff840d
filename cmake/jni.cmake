# The library for programs in Java, only where there is a JDK. Everything else is built without.
#
#   paceline_jni   build/spark/classes: the classes of spark/java that need no Spark, and, as a
#                  resource, the shared library with its SHA-256
#
# A sanitizer's runtime cannot be loaded into a JVM.
set(jni_classes ${CMAKE_BINARY_DIR}/spark/classes)
set(jni_missing "")
find_package(Java 17 QUIET COMPONENTS Development)
if(PACELINE_SANITIZE OR PACELINE_FUZZ)
  set(jni_missing "the build has sanitizers")
elseif(NOT Java_Development_FOUND)
  set(jni_missing "there is no JDK from version 17 on")
else()
  get_filename_component(jdk ${Java_JAVAC_EXECUTABLE} REALPATH)
  get_filename_component(jdk ${jdk}/../.. ABSOLUTE)
  find_path(PACELINE_JNI_INCLUDE jni.h PATHS ${jdk}/include NO_DEFAULT_PATH)
  if(NOT PACELINE_JNI_INCLUDE)
    set(jni_missing "the JDK has no jni.h")
  endif()
endif()

if(jni_missing)
  message(STATUS "The library for Java is left out: ${jni_missing}")
else()
  # javac writes the header of the native functions: the compiler compares C with Java.
  set(java ${PROJECT_SOURCE_DIR}/spark/java/paceline/spark)
  file(GLOB jni_java CONFIGURE_DEPENDS ${java}/Native*.java ${java}/Net*.java)
  list(APPEND jni_java ${java}/NDArray.java ${java}/PacelineException.java
    ${java}/WeightCollection.java)
  set(jni_header ${CMAKE_BINARY_DIR}/gen/jni/paceline_spark_Native.h)
  add_custom_command(
    OUTPUT ${jni_header}
    COMMAND ${Java_JAVAC_EXECUTABLE} --release 17 -Xlint:all -Werror
            -h ${CMAKE_BINARY_DIR}/gen/jni -d ${jni_classes} ${jni_java}
    DEPENDS ${jni_java}
    VERBATIM)

  folder_sources(jni sources)
  set(jni_map ${PROJECT_SOURCE_DIR}/src/jni/paceline_jni.map)
  add_library(paceline_jni_library SHARED ${sources} ${jni_header})
  set_target_properties(paceline_jni_library PROPERTIES OUTPUT_NAME paceline-jni
    LINK_DEPENDS ${jni_map})
  target_compile_definitions(paceline_jni_library PRIVATE _POSIX_C_SOURCE=200809L)
  target_compile_options(paceline_jni_library PRIVATE
    $<TARGET_PROPERTY:paceline_flags,INTERFACE_COMPILE_OPTIONS>)
  target_include_directories(paceline_jni_library PRIVATE src ${CMAKE_BINARY_DIR}/gen)
  target_include_directories(paceline_jni_library SYSTEM PRIVATE
    ${PACELINE_JNI_INCLUDE} ${PACELINE_JNI_INCLUDE}/linux)
  target_link_libraries(paceline_jni_library PRIVATE paceline PkgConfig::CJSON Threads::Threads)
  # nodelete: a class loader that is collected does not unmap code that threads of OpenMP are in.
  target_link_options(paceline_jni_library PRIVATE
    LINKER:--version-script=${jni_map} LINKER:-z,nodelete LINKER:-z,defs)

  string(TOLOWER ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} jni_platform)
  set(jni_resource ${jni_classes}/native/${jni_platform})
  add_custom_command(
    OUTPUT ${jni_resource}/libpaceline-jni.so.sha256
    COMMAND ${CMAKE_COMMAND} -E make_directory ${jni_resource}
    COMMAND ${CMAKE_STRIP} --strip-debug -o ${jni_resource}/libpaceline-jni.so
            $<TARGET_FILE:paceline_jni_library>
    COMMAND ${CMAKE_COMMAND} -E chdir ${jni_resource}
            ${CMAKE_COMMAND} -E sha256sum libpaceline-jni.so > ${jni_resource}/libpaceline-jni.so.sha256
    DEPENDS paceline_jni_library
    VERBATIM)
  add_custom_target(paceline_jni ALL
    DEPENDS ${jni_header} ${jni_resource}/libpaceline-jni.so.sha256)
endif()

# The native functions, and SparkNet's classes on them, in a JVM without Spark.
if(NOT PACELINE_FUZZ AND TARGET PkgConfig::CMOCKA)
  enable_testing()
  if(jni_missing)
    add_test(NAME spark/native_test
      COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] test_native_functions")
    add_test(NAME spark/sparknet_test
      COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] test_sparknet")
    add_test(NAME spark/native_shared_test
      COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] test_shared_variables")
  else()
    set(jni_test_classes ${CMAKE_BINARY_DIR}/spark/test)
    set(tests ${PROJECT_SOURCE_DIR}/spark/test)
    file(GLOB jni_tests CONFIGURE_DEPENDS ${tests}/paceline/spark/N*Test.java
      ${tests}/paceline/spark/TestCases.java)
    add_custom_command(
      OUTPUT ${jni_test_classes}/paceline/spark/NativeTest.class
      COMMAND ${Java_JAVAC_EXECUTABLE} --release 17 -Xlint:all -Werror
              -cp ${jni_classes} -d ${jni_test_classes} ${jni_tests}
      DEPENDS ${jni_tests} ${jni_header}
      VERBATIM)
    add_custom_target(spark_native_test ALL
      DEPENDS ${jni_test_classes}/paceline/spark/NativeTest.class paceline_jni)
    set(jni_test_jvm ${jdk}/bin/java -Xcheck:jni --enable-native-access=ALL-UNNAMED
      -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp ${jni_classes}:${jni_test_classes})
    add_test(NAME spark/native_test COMMAND ${jni_test_jvm} paceline.spark.NativeTest)
    add_executable(sparknet_reference ${tests}/sparknet_reference.c)
    target_link_libraries(sparknet_reference PRIVATE paceline paceline_flags)
    add_test(NAME spark/sparknet_test
      COMMAND ${jni_test_jvm} paceline.spark.NetTest $<TARGET_FILE:sparknet_reference>)
    add_test(NAME spark/native_shared_test
      COMMAND ${jni_test_jvm} paceline.spark.NativeSharedTest)
    # -Xcheck:jni warns on its standard output, and ends well.
    set_tests_properties(spark/native_test spark/native_shared_test spark/sparknet_test PROPERTIES
      FAIL_REGULAR_EXPRESSION "WARNING|Warning|FATAL ERROR")
  endif()
  set_tests_properties(spark/native_test spark/native_shared_test spark/sparknet_test PROPERTIES
    TIMEOUT 900 LABELS spark PROCESSORS 2
    ENVIRONMENT "PACELINE_TUNER=off;OMP_WAIT_POLICY=passive")
endif()
