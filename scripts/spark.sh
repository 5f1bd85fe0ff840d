# shellcheck shell=bash
# ./run spark: a standalone cluster of one master and three workers on loopback, and LeNet on it.
# Sourced by ./run, by programs of bench/ and by spark/test/cluster.sh. $SPARK_HOME is used where it is
# set; else Spark is installed into .spark.

spark_version=4.1.2
spark_workers=3
spark_cores=1   # of each worker, and of an executor
spark_memory=1g # likewise
spark_home=$PWD/build/spark/home # the build's, with an archive of classes
# Starts in a quarter of the time.
spark_java="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile=$spark_home/classes.jsa"
needs_spark=(openjdk-17-jdk-headless python3-venv dataset-fashion-mnist)
spark_pids=() # of the cluster, the master first
spark_dir=    # its files; gone at the end
spark_settings= # for spark-submit --properties-file

find_spark() {
    local home
    if [ -n "${SPARK_HOME:-}" ]; then
        [ -d "$SPARK_HOME/jars" ] && return 0
        echo "SPARK_HOME is $SPARK_HOME, which has no folder jars: set it to a Spark's, or unset it" >&2
        return 1
    fi
    for home in .spark/lib/python3*/site-packages/pyspark; do
        [ ! -d "$home/jars" ] || SPARK_HOME=$PWD/$home
    done
    [ -n "${SPARK_HOME:-}" ] && export SPARK_HOME
}

install_spark() {
    install_missing "${needs_build[@]}" "${needs_spark[@]}" || return
    find_spark && echo "Spark is in $SPARK_HOME" && return 0
    [ -z "${SPARK_HOME:-}" ] || return 1
    python3 -m venv .spark && .spark/bin/pip install -q "pyspark==$spark_version" numpy && find_spark
}

write_conf() {
    local secret
    spark_settings=$spark_dir/spark.conf
    spark_log=-Dlog4j2.configurationFile=$spark_dir/log4j2.properties
    secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
    {
        cat spark/paceline-spark.conf
        printf '%s\n' "spark.authenticate.secret $secret" \
            "spark.jars $PWD/build/paceline-spark.jar" \
            "spark.driver.host 127.0.0.1" "spark.driver.bindAddress 127.0.0.1" \
            "spark.ui.enabled false" "spark.master.rest.enabled false" \
            "spark.cores.max $((spark_workers * spark_cores))" "spark.executor.cores $spark_cores" \
            "spark.executor.memory $spark_memory" "spark.driver.memory 1g" \
            "spark.sql.warehouse.dir $spark_dir/warehouse" \
            "spark.driver.extraJavaOptions $spark_java $spark_log" \
            "spark.executor.extraJavaOptions $spark_java $spark_log"
    } >"$spark_settings"
    write_log "$spark_dir/log4j2.properties"
}

# Warnings go to stderr.
write_log() { # FILE
    printf '%s\n' 'rootLogger.level = warn' 'rootLogger.appenderRef.stderr.ref = stderr' \
        'appender.stderr.type = Console' 'appender.stderr.name = stderr' \
        'appender.stderr.target = SYSTEM_ERR' 'appender.stderr.layout.type = PatternLayout' \
        'appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n' >"$1"
}

# in_background COMMAND…: its process ends with this one, however that ends.
in_background() {
    setpriv --pdeathsig TERM "$@" </dev/null &
    spark_pids+=($!)
}

# start_daemon NAME CLASS ARGUMENT…
start_daemon() {
    local name=$1
    shift
    in_background "$SPARK_HOME/bin/spark-class" "$@" --properties-file "$spark_settings" \
        >"$spark_dir/$name.log" 2>&1
}

# wait_for SECONDS PATTERN COUNT FILE: until the file has that many lines with the pattern.
wait_for() {
    local until=$((SECONDS + $1))
    while [ "$(grep -c "$2" "$4" 2>/dev/null)" -lt "$3" ]; do
        if [ "$SECONDS" -ge "$until" ]; then
            echo "./run: no '$2' in $4 after $1 s; its end:" >&2
            tail -n 20 "$4" >&2
            return 1
        fi
        sleep 0.2
    done
}

start_cluster() {
    spark_dir=$(mktemp -d)
    write_conf || return
    # A Spark of a virtual environment has its Python in its folder bin.
    PYSPARK_PYTHON=$SPARK_HOME/../../../../bin/python3
    [ -x "$PYSPARK_PYTHON" ] || PYSPARK_PYTHON=python3
    export SPARK_HOME=$spark_home PYSPARK_PYTHON
    export MALLOC_ARENA_MAX=2 # of the driver: paceline-spark.conf has that of executors
    start_daemons
}

# Master and workers with the settings, and the file for log4j, that are in spark_dir.
start_daemons() {
    local deploy=org.apache.spark.deploy n log=-Dlog4j2.configurationFile=$spark_dir/master.properties
    export SPARK_CONF_DIR=$spark_home/conf SPARK_LOCAL_DIRS=$spark_dir/local SPARK_LOCAL_IP=127.0.0.1 \
        SPARK_SCALA_VERSION=2.13 SPARK_DAEMON_MEMORY=256m "SPARK_DAEMON_JAVA_OPTS=$spark_java $log"
    {
        cat "$spark_dir/log4j2.properties"
        printf '%s\n' 'logger.master.name = org.apache.spark.deploy.master' 'logger.master.level = info'
    } >"$spark_dir/master.properties"
    start_daemon master $deploy.master.Master --host 127.0.0.1 --port 0 --webui-port 0
    wait_for 60 'Starting Spark master at' 1 "$spark_dir/master.log" || return
    spark_master=$(sed -n 's/.*Starting Spark master at \(spark:[^ ]*\).*/\1/p' \
        "$spark_dir/master.log")
    for ((n = 1; n <= spark_workers; n++)); do
        start_daemon "worker-$n" $deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --cores "$spark_cores" \
            --memory "$spark_memory" --work-dir "$spark_dir/work-$n" "$spark_master"
    done
    wait_for 90 'Registering worker' "$spark_workers" "$spark_dir/master.log"
}

# The application first, the master last. A process that has ended is no error.
stop_cluster() {
    local n
    for ((n = ${#spark_pids[@]} - 1; n >= 0; n--)); do
        kill "${spark_pids[n]}" 2>/dev/null || true
    done
    [ ${#spark_pids[@]} = 0 ] || wait "${spark_pids[@]}" 2>/dev/null || true
    spark_pids=()
    [ -z "$spark_dir" ] || rm -rf "$spark_dir"
    spark_dir=
}

# submit OPTION… PROGRAM ARGUMENT…: to the cluster, in the background.
submit() {
    in_background "$SPARK_HOME/bin/spark-submit" --properties-file "$spark_settings" \
        --master "$spark_master" "$@"
}

train_on_spark() {
    submit --class FashionLenet build/paceline-spark-examples.jar "$spark_dir/fashion" 5 "$spark_workers"
    wait "${spark_pids[-1]}" && return 0
    tail -n 20 "$spark_dir"/work-*/app-*/*/stderr | grep -v '^Spark Executor Command' >&2
    return 1
}

spark() {
    local install_s build_s cluster_s
    step install install_spark
    install_s=$step_s
    # A Spark that was found since the last time changes what can be built.
    grep -qs 'paceline-spark.jar' build/build.ninja || installed=1
    step build build build paceline_spark -- -DCMAKE_BUILD_TYPE=Release
    build_s=$step_s
    trap stop_cluster EXIT
    trap 'exit 130' INT TERM
    step cluster start_cluster
    cluster_s=$step_s
    step training train_on_spark
    stop_cluster
    printf 'steps              install %s, build %s, cluster %s, application %s\n' "$install_s" \
        "$build_s" "$cluster_s" "$step_s"
}
