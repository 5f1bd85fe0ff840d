#!/usr/bin/env bash
# Runs a test of the module in an application with three executors on this machine.
#
#   spark/test/local_cluster.sh MODULE_JAR TEST_CLASSES CLASS
#   spark/test/local_cluster.sh MODULE_JAR PYTHON PROGRAM
#
# SPARK_HOME names the home that scripts/spark_archive.sh makes, below which executors write, and
# SPARK_TEST_CONF files of further settings, with colons between them. The settings are in the file
# SPARK_TEST_SETTINGS for the test's own applications.
set -euo pipefail
module=$1
home=$(mktemp -d)
pid=
cleanup() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    rm -rf "$home" "$SPARK_HOME/work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$home/files" "$home/events"
IFS=: read -ra settings <<<"${SPARK_TEST_CONF:-}"
if [ -d "$2" ]; then
    (cd "$2" && jar cf "$home/test.jar" .)
    program=(--class "$3" "$home/test.jar")
else
    export PYSPARK_PYTHON=$2 PYTHONPATH=$(cd "$(dirname "$0")/../.." && pwd)/python
    program=("$3")
fi
java="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile=$SPARK_HOME/classes.jsa"
java+=" -Dlog4j2.configurationFile=$home/log4j2.properties"
{
    cat "$(dirname "$0")/../paceline-spark.conf"
    printf '%s\n' "spark.master local-cluster[3,1,512]" \
        "spark.authenticate.secret $(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" \
        "spark.jars $module" \
        "spark.driver.host 127.0.0.1" "spark.driver.bindAddress 127.0.0.1" \
        "spark.ui.enabled false" "spark.master.rest.enabled false" \
        "spark.executor.cores 1" "spark.executor.memory 512m" "spark.driver.memory 1g" \
        "spark.local.dir $home/local" "spark.sql.warehouse.dir $home/warehouse" \
        "spark.eventLog.dir $home/events" \
        "spark.sql.shuffle.partitions 6" \
        "spark.driver.extraJavaOptions $java" "spark.executor.extraJavaOptions $java"
    [ ${#settings[@]} = 0 ] || cat "${settings[@]}"
} >"$home/spark.conf"
printf '%s\n' 'rootLogger.level = warn' 'rootLogger.appenderRef.stderr.ref = stderr' \
    'appender.stderr.type = Console' 'appender.stderr.name = stderr' \
    'appender.stderr.target = SYSTEM_ERR' 'appender.stderr.layout.type = PatternLayout' \
    'appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n' \
    >"$home/log4j2.properties"
export SPARK_CONF_DIR=$SPARK_HOME/conf SPARK_LOCAL_IP=127.0.0.1 SPARK_SCALA_VERSION=2.13
export SPARK_TEST_SETTINGS=$home/spark.conf SPARK_TEST_JAR=$home/test.jar
"$SPARK_HOME/bin/spark-submit" --properties-file "$SPARK_TEST_SETTINGS" "${program[@]}" "$home/files" </dev/null &
pid=$!
status=0
wait "$pid" || status=$?
pid=
[ "$status" = 0 ] || tail -n 20 "$SPARK_HOME"/work/app-*/*/stderr 2>/dev/null | grep -v '^Spark Executor Command' || true
exit "$status"
