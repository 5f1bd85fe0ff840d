#!/usr/bin/env python3
"""A join and a filter in Spark SQL over Fashion-MNIST, then a Pipeline with the estimator and an evaluator, in a
standalone cluster of three workers on this machine: from Java (examples/spark/FashionSql.java) and from Python. Each
saved model is loaded by another application. The command trains on the very same rows, as NumPy arrays.

  bench/spark_sql.py [--epochs 5] [--seeds 1]

Printed are the accuracies on the test rows, and how far Spark's are from the command's, with several seeds the means.
Needs build/ with paceline and paceline_spark, and Spark's Python (of SPARK_HOME) with numpy.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from spark_cluster import Cluster, ROOT

WORKERS = 3
QUERY = ("SELECT p.image, l.label, l.test FROM pictures p JOIN labels l ON p.id = l.id "
         "WHERE l.id % 10 <> 3 AND l.label IS NOT NULL")
JOB = """name: 'fashion-sql' net {{ zoo: 'lenet' }} batch: 64 threads: 1 seed: {seed} stop {{ epochs: {epochs} }}
solver {{ type: 'SGD' base_lr: 0.04 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed' }}
strategy {{ sync {{ tau: 50 }} }}
train_data {{ {train} scale: 0.00390625 }} test_data {{ {test} scale: 0.00390625 }}"""


# ---- the application in Python

def query(spark, folder):
    for table in "pictures", "labels":
        spark.read.parquet(os.path.join(folder, table)).createOrReplaceTempView(table)
    return spark.sql(QUERY)


def dump(rows, folder):
    """The rows as arrays: {train,test}-{values,labels}.npy."""
    import numpy
    for name, some in ("train", rows.filter("not test")), ("test", rows.filter("test")):
        all_rows = some.collect()
        values = numpy.frombuffer(b"".join(bytes(row.image) for row in all_rows), numpy.uint8)
        numpy.save(os.path.join(folder, f"{name}-values.npy"), values.reshape(len(all_rows), 1, 28, 28))
        labels = numpy.array([row.label for row in all_rows], numpy.int32)
        numpy.save(os.path.join(folder, f"{name}-labels.npy"), labels)


def run_application(mode, folder, job, saved):
    from paceline.spark import PacelineEstimator
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.appName("fashion-sql").getOrCreate()
    try:
        rows = query(spark, folder)
        if mode == "dump":
            dump(rows, folder)
            return
        if mode == "fit":
            estimator = PacelineEstimator(job=job, featuresCol="image", validationIndicatorCol="test")
            model = Pipeline(stages=[estimator]).fit(rows)
            model.write().overwrite().save(saved)
        else:
            model = PipelineModel.load(saved)
        evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
        print(f"accuracy {evaluator.evaluate(model.transform(rows.filter('test'))):.6f} of {rows.count()} rows")
    finally:
        spark.stop()


# ---- the measurement

def wait_for(application, what):
    output = application.communicate()[0]
    if application.returncode != 0:
        sys.exit(f"{what} has failed")
    return [float(line.split()[1]) for line in output.splitlines() if line.startswith("accuracy")]


def of_spark(language, submit, job, saved):
    """Of the model that was fitted, and of the one that another application has loaded."""
    fitted = wait_for(submit("fit", job, saved), f"the fit from {language}")[0]
    loaded = wait_for(submit("transform", job, saved), f"the loaded model in {language}")[0]
    print(f"{language:8} {100 * fitted:6.2f} %, loaded by another application {100 * loaded:6.2f} %", flush=True)
    if fitted != loaded:
        sys.exit("the loaded model predicts otherwise")
    return fitted


def of_command(folder, job_text, out):
    path = out + ".job"
    with open(path, "w", encoding="utf-8") as f:
        f.write(job_text)
    subprocess.run([os.path.join(ROOT, "build/paceline"), "train", path, "--quiet", "--out", out, "--set",
                    f"workers={WORKERS}"], check=True, cwd=folder, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as f:
        end = [e for e in map(json.loads, f) if e["kind"] == "end"][-1]
    print(f"command  {100 * (1 - end['test_error']):6.2f} %", flush=True)
    return 1 - end["test_error"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    found = {"Java": [], "Python": [], "command": []}
    with Cluster(WORKERS) as cluster:
        tables = cluster.path("tables")
        os.makedirs(tables)
        wait_for(cluster.submit("FashionSql", "tables", cluster.path("fashion"), tables), "writing the tables")

        def java(mode, job, saved):
            arguments = (job, saved) if mode == "fit" else (saved,)
            return cluster.submit("FashionSql", mode, tables, QUERY, *arguments)

        def python(mode, job, saved):
            return cluster.submit_python(os.path.abspath(__file__), "--application", mode, tables, job, saved)

        wait_for(python("dump", "", ""), "writing the arrays")
        arrays = {name: f"npy {{ values: '{tables}/{name}-values.npy' labels: '{tables}/{name}-labels.npy' }}"
                  for name in ("train", "test")}
        for seed in range(1, options.seeds + 1):
            settings = {"seed": seed, "epochs": options.epochs}
            job = JOB.format(train="", test="", **settings)
            found["Java"].append(of_spark("Java", java, job, cluster.path(f"java-{seed}")))
            found["Python"].append(of_spark("Python", python, job, cluster.path(f"python-{seed}")))
            job = JOB.format(**arrays, **settings)
            found["command"].append(of_command(tables, job, cluster.path(f"command-{seed}")))
    means = {name: 100 * statistics.mean(values) for name, values in found.items()}
    for name in "Java", "Python":
        print(f"{name} less the command, mean: {means[name] - means['command']:+.2f} points")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--application"]:
        run_application(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main())
