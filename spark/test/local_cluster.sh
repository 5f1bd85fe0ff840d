#!/usr/bin/env bash
# Runs a test of the module in an application with three executors on this machine.
#
#   spark/test/local_cluster.sh MODULE_JAR TEST_CLASSES CLASS
#   spark/test/local_cluster.sh MODULE_JAR PYTHON PROGRAM
#
# SPARK_HOME names the Spark, and SPARK_TEST_CONF a file of further settings. The executors write below a home of links, which goes afterwards.
set -euo pipefail
module=$1
home=$(mktemp -d)
pid=
cleanup() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    rm -rf "$home"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$home/conf" "$home/files"
ln -s "$SPARK_HOME/jars" "$SPARK_HOME/bin" "$home/"
if [ -d "$2" ]; then
    (cd "$2" && jar cf "$home/test.jar" .)
    program=(--class "$3" "$home/test.jar")
else
    export PYSPARK_PYTHON=$2 PYTHONPATH=$(cd "$(dirname "$0")/../.." && pwd)/python
    ln -s "$SPARK_HOME/python" "$home/"
    program=("$3")
fi
c1='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
{
    cat "$(dirname "$0")/../paceline-spark.conf"
    printf '%s\n' "spark.master local-cluster[3,1,512]" \
        "spark.authenticate.secret $(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" \
        "spark.jars $module" \
        "spark.driver.host 127.0.0.1" "spark.driver.bindAddress 127.0.0.1" \
        "spark.ui.enabled false" "spark.master.rest.enabled false" \
        "spark.executor.cores 1" "spark.executor.memory 512m" "spark.driver.memory 1g" \
        "spark.local.dir $home/local" "spark.sql.warehouse.dir $home/warehouse" \
        "spark.sql.shuffle.partitions 6" \
        "spark.driver.extraJavaOptions $c1" "spark.executor.extraJavaOptions $c1"
    [ -z "${SPARK_TEST_CONF:-}" ] || cat "$SPARK_TEST_CONF"
} >"$home/conf/spark-defaults.conf"
printf '%s\n' 'rootLogger.level = warn' 'rootLogger.appenderRef.stderr.ref = stderr' \
    'appender.stderr.type = Console' 'appender.stderr.name = stderr' \
    'appender.stderr.target = SYSTEM_ERR' 'appender.stderr.layout.type = PatternLayout' \
    'appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n' \
    >"$home/conf/log4j2.properties"
export SPARK_HOME=$home SPARK_CONF_DIR=$home/conf SPARK_LOCAL_IP=127.0.0.1 SPARK_SCALA_VERSION=2.13
"$home/bin/spark-submit" "${program[@]}" "$home/files" </dev/null &
pid=$!
status=0
wait "$pid" || status=$?
pid=
[ "$status" = 0 ] || tail -n 20 "$home"/work/app-*/*/stderr 2>/dev/null | grep -v '^Spark Executor Command' || true
exit "$status"
