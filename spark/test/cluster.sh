#!/usr/bin/env bash
# Runs a test of the module in an application with three executors on this machine.
#
#   spark/test/cluster.sh MODULE_JAR TEST_CLASSES CLASS
#   spark/test/cluster.sh MODULE_JAR PYTHON PROGRAM
#
# SPARK_HOME names the home that scripts/spark_archive.sh makes, below which executors write, and
# SPARK_TEST_CONF files of further settings, with colons between them. The settings are in the file
# SPARK_TEST_SETTINGS for the test's own applications. With SPARK_TEST_CLUSTER=standalone the cluster of
# spark.master, local-cluster[WORKERS,CORES,MEMORY], is a master and workers that are processes; else
# they are in the test's JVM. All processes are below that of this script, SPARK_TEST_PID. Several tests
# may run at once: their applications differ in their names.
set -euo pipefail
module=$1
tests=$(dirname "$0")
# shellcheck source=scripts/spark.sh
. "$tests/../../scripts/spark.sh"
home=$(mktemp -d)
work=$SPARK_HOME/work/app-$$-
cleanup() {
    stop_cluster
    rm -rf "$home" "$work"*
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$home/files" "$home/events"
IFS=: read -ra settings <<<"${SPARK_TEST_CONF:-}"
if [ -d "$2" ]; then
    (cd "$2" && jar cf "$home/test.jar" .)
    program=(--class "$3" "$home/test.jar")
else
    export PYSPARK_PYTHON=$2 PYTHONPATH=$(cd "$tests/../.." && pwd)/python
    program=("$3")
fi
spark_home=$SPARK_HOME
spark_java="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile=$SPARK_HOME/classes.jsa"
java="$spark_java -Dlog4j2.configurationFile=$home/log4j2.properties"
spark_settings=$home/spark.conf
{
    cat "$tests/../paceline-spark.conf"
    printf '%s\n' "spark.master local-cluster[3,1,512]" \
        "spark.authenticate.secret $(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" \
        "spark.jars $module" "spark.deploy.appIdPattern app-$$-%s-%04d" \
        "spark.driver.host 127.0.0.1" "spark.driver.bindAddress 127.0.0.1" \
        "spark.ui.enabled false" "spark.master.rest.enabled false" \
        "spark.executor.cores 1" "spark.executor.memory 512m" "spark.driver.memory 1g" \
        "spark.local.dir $home/local" "spark.sql.warehouse.dir $home/warehouse" \
        "spark.eventLog.dir $home/events" \
        "spark.sql.shuffle.partitions 6" \
        "spark.driver.extraJavaOptions $java" "spark.executor.extraJavaOptions $java"
    [ ${#settings[@]} = 0 ] || cat "${settings[@]}"
} >"$spark_settings"
write_log "$home/log4j2.properties"
if [ "${SPARK_TEST_CLUSTER:-local}" = standalone ]; then
    cluster=$(sed -n 's/^spark\.master *local-cluster\[\(.*\)\]$/\1/p' "$spark_settings" | tail -n 1)
    IFS=, read -r spark_workers spark_cores spark_memory <<<"$cluster"
    spark_memory+=m spark_dir=$home work=$home/work-
    start_daemons
    sed -i "s|^spark\.master .*|spark.master $spark_master|" "$spark_settings"
fi
export SPARK_CONF_DIR=$SPARK_HOME/conf SPARK_LOCAL_IP=127.0.0.1 SPARK_SCALA_VERSION=2.13
export SPARK_TEST_SETTINGS=$spark_settings SPARK_TEST_JAR=$home/test.jar SPARK_TEST_PID=$$
in_background "$SPARK_HOME/bin/spark-submit" --properties-file "$spark_settings" "${program[@]}" "$home/files"
status=0
wait "${spark_pids[-1]}" || status=$?
[ "$status" = 0 ] || find "$work"* -name stderr -exec tail -n 20 {} + 2>/dev/null |
    grep -v '^Spark Executor Command' || true
exit "$status"
