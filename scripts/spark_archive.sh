#!/usr/bin/env bash
# Makes HOME, a home of Spark for a cluster on this machine, and an archive of its classes with which
# each JVM of that cluster starts with a third less work:
#
#   scripts/spark_archive.sh SPARK_HOME HOME BUILD
#
# HOME has links to the Spark, so that executors write below it, and an empty folder conf: a JVM takes
# an archive only with the class path of the run that made it, and that path may name no folder with
# files. Settings are given by --properties-file instead. The archive is HOME/classes.jsa; without it
# JVMs start as ever.
set -euo pipefail
spark=$1 home=$2 build=$(cd "$3" && pwd)
rm -rf "$home"
mkdir -p "$home/conf"
ln -s "$spark/jars" "$spark/bin" "$home/"
[ ! -d "$spark/python" ] || ln -s "$spark/python" "$home/"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    cat "$(dirname "$0")/../spark/paceline-spark.conf"
    printf '%s\n' "spark.master local[1]" "spark.jars $build/paceline-spark.jar" \
        "spark.authenticate.secret $(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" \
        "spark.driver.host 127.0.0.1" "spark.driver.bindAddress 127.0.0.1" \
        "spark.ui.enabled false" "spark.local.dir $work" "spark.sql.warehouse.dir $work/warehouse" \
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit=$home/classes.jsa"
} >"$work/spark.conf"
export SPARK_HOME=$home SPARK_CONF_DIR=$home/conf SPARK_LOCAL_IP=127.0.0.1 SPARK_SCALA_VERSION=2.13
PACELINE_TUNER=off timeout 300 "$home/bin/spark-submit" --properties-file "$work/spark.conf" \
    --class ManyFits "$build/paceline-spark-examples.jar" 1 1 0 1 >"$work/said" 2>&1 </dev/null ||
    { tail -n 5 "$work/said" && echo "there is no archive of Spark's classes: JVMs start slower"; } >&2
