# The module for Spark, only where the library for Java is built and a Spark is found: SPARK_HOME, or
# pyspark in the virtual environment .spark of the checkout.
#
#   paceline_spark   build/paceline-spark.jar: all classes of spark/java, and the native library;
#                    build/paceline-spark-examples.jar: those of examples/spark;
#                    build/spark/home: the Spark by links, with an archive of its classes
set(spark_home $ENV{SPARK_HOME})
if(NOT spark_home)
  file(GLOB spark_home ${PROJECT_SOURCE_DIR}/.spark/lib/python3*/site-packages/pyspark)
endif()
file(GLOB spark_core ${spark_home}/jars/spark-core_2.13-*.jar)

set(spark_missing "${jni_missing}")
if(NOT spark_missing AND NOT spark_core)
  set(spark_missing "SPARK_HOME names no Spark with Scala 2.13")
endif()
if(spark_missing)
  message(STATUS "The module for Spark is left out: ${spark_missing}")
else()
  set(spark_classes ${CMAKE_BINARY_DIR}/spark/module)
  set(spark_jar ${CMAKE_BINARY_DIR}/paceline-spark.jar)
  set(spark_javac ${Java_JAVAC_EXECUTABLE} --release 17 -proc:none
      -Xlint:all,-serial,-processing,-classfile,-path -Werror)
  file(GLOB spark_java CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/spark/java/paceline/spark/*.java)
  add_custom_command(
    OUTPUT ${spark_jar}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${spark_classes}
    COMMAND ${spark_javac} -cp "${spark_home}/jars/*" -d ${spark_classes} ${spark_java}
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${jni_classes}/native ${spark_classes}/native
    COMMAND ${Java_JAR_EXECUTABLE} cf ${spark_jar} -C ${spark_classes} .
    DEPENDS ${spark_java} paceline_jni ${jni_resource}/libpaceline-jni.so.sha256
    VERBATIM)

  set(spark_example_classes ${CMAKE_BINARY_DIR}/spark/examples)
  set(spark_examples_jar ${CMAKE_BINARY_DIR}/paceline-spark-examples.jar)
  file(GLOB spark_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/spark/*.java)
  add_custom_command(
    OUTPUT ${spark_examples_jar}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${spark_example_classes}
    COMMAND ${spark_javac} -cp "${spark_jar}:${spark_home}/jars/*" -d ${spark_example_classes}
            ${spark_examples}
    COMMAND ${Java_JAR_EXECUTABLE} cf ${spark_examples_jar} -C ${spark_example_classes} .
    DEPENDS ${spark_examples} ${spark_jar}
    VERBATIM)
  set(spark_links ${CMAKE_BINARY_DIR}/spark/home)
  set(spark_archived ${CMAKE_BINARY_DIR}/spark/home.stamp)
  add_custom_command(
    OUTPUT ${spark_archived}
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/spark_archive.sh ${spark_home} ${spark_links} ${CMAKE_BINARY_DIR}
    COMMAND ${CMAKE_COMMAND} -E touch ${spark_archived}
    DEPENDS ${spark_jar} ${spark_examples_jar} ${PROJECT_SOURCE_DIR}/scripts/spark_archive.sh
    VERBATIM)
  add_custom_target(paceline_spark ALL DEPENDS ${spark_jar} ${spark_examples_jar} ${spark_archived})
endif()

# The module in an application with three executors. A test reads the settings of spark/test that have its name, and
# NAME_process_test is NAME_test with the library in processes of its own. The cluster of spark_standalone is a master
# and workers that are processes, that of others is in the driver's JVM.
if(NOT PACELINE_FUZZ AND TARGET PkgConfig::CMOCKA)
  # The longest come first, so that none is left alone at the end.
  set(spark_clusters failure_test FailureTest local_cluster_test SparkTest session_test SessionTest
    rows_test RowsTest failure_process_test FailureTest dynamic_allocation_test ElasticTest
    rows_process_test RowsTest local_cluster_process_test SparkTest
    resume_test ResumeTest resume_process_test ResumeTest
    session_process_test SessionTest shared_variable_process_test SharedVariableTest
    shared_variable_test SharedVariableTest)
  set(spark_standalone failure_test resume_test dynamic_allocation_test)
  set(spark_processes lease_test LeaseTest engine_process_test EngineProcessTest)
  if(NOT spark_missing)
    set(spark_test_classes ${CMAKE_BINARY_DIR}/spark/cluster_test)
    set(spark_test SparkTest SparkNetTest SharedVariableTest FailureTest ElasticTest ResumeTest
      RowsTest RunningFit HeldThread RefusedFits ShardServerTest LeaseTest EngineProcessTest ProcessTest SessionTest EstimatorTest
      KeyTest TestCases)
    list(TRANSFORM spark_test PREPEND ${PROJECT_SOURCE_DIR}/spark/test/paceline/spark/)
    list(TRANSFORM spark_test APPEND .java)
    add_custom_command(
      OUTPUT ${spark_test_classes}/paceline/spark/SparkTest.class
      COMMAND ${spark_javac} -cp "${spark_jar}:${spark_home}/jars/*" -d ${spark_test_classes}
              ${spark_test}
      DEPENDS ${spark_test} ${spark_jar}
      VERBATIM)
    add_executable(hold_thread ${PROJECT_SOURCE_DIR}/spark/test/hold_thread.c)
    target_link_libraries(hold_thread PRIVATE paceline_flags)
    target_compile_definitions(hold_thread PRIVATE _GNU_SOURCE)
    add_custom_target(spark_local_cluster_test ALL
      DEPENDS ${spark_test_classes}/paceline/spark/SparkTest.class)
  endif()
  set(spark_pairs ${spark_clusters} ${spark_processes})
  while(spark_pairs)
    list(POP_FRONT spark_pairs name class)
    if(spark_missing)
      add_test(NAME spark/${name} COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] ${name}")
    elseif(name IN_LIST spark_processes)
      add_test(NAME spark/${name}
        COMMAND ${Java_JAVA_EXECUTABLE} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
                -cp "${spark_jar}:${spark_test_classes}:${spark_home}/jars/*" paceline.spark.${class})
    else()
      add_test(NAME spark/${name}
        COMMAND ${PROJECT_SOURCE_DIR}/spark/test/cluster.sh ${spark_jar} ${spark_test_classes}
                paceline.spark.${class})
    endif()
  endwhile()
  # A Spark of a virtual environment has its Python beside it.
  get_filename_component(spark_python ${spark_home}/../../../../bin/python3 ABSOLUTE)
  if(spark_missing OR NOT EXISTS ${spark_python})
    add_test(NAME spark/python_test COMMAND ${CMAKE_COMMAND} -E echo "[  SKIPPED ] test_python")
  else()
    add_test(NAME spark/python_test
      COMMAND ${PROJECT_SOURCE_DIR}/spark/test/cluster.sh ${spark_jar} ${spark_python}
              ${PROJECT_SOURCE_DIR}/spark/test/spark_test.py)
  endif()
  # They wait for Spark most of the time: two run at once, beside tests that wait as well. Applications of Spark 3
  # that start in the same second would have the same name, and the same folders.
  if(spark_core MATCHES "spark-core_2\\.13-3\\.")
    set(spark_lock RESOURCE_LOCK spark_home)
  endif()
  foreach(name python_test ${spark_clusters} ${spark_processes})
    if(name MATCHES "_test$")
      string(REGEX REPLACE "(_process)?_test$" "" settings ${name})
      set(spark_conf ${PROJECT_SOURCE_DIR}/spark/test/${settings}.conf)
      if(NOT EXISTS ${spark_conf})
        set(spark_conf)
      endif()
      if(name MATCHES "_process_test$")
        list(PREPEND spark_conf ${PROJECT_SOURCE_DIR}/spark/test/process.conf) # its own settings count
      endif()
      set(spark_cluster local)
      if(name IN_LIST spark_standalone)
        set(spark_cluster standalone)
      endif()
      list(JOIN spark_conf ":" spark_conf)
      set_tests_properties(spark/${name} PROPERTIES TIMEOUT 900 LABELS spark PROCESSORS 2 COST 0.5 ${spark_lock}
        ENVIRONMENT "PACELINE_TUNER=off;SPARK_HOME=${spark_links};SPARK_TEST_CONF=${spark_conf};SPARK_TEST_CLUSTER=${spark_cluster}"
        ENVIRONMENT_MODIFICATION SPARK_TEST_BUILD=set:${CMAKE_BINARY_DIR})
    endif()
  endforeach()
endif()
