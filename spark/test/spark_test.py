"""The Python module in the application of spark/test/local_cluster.sh: fit, transform, save, load, a stream.

With the argument --without-jar it is a process of its own, whose JVM lacks the jar.
"""

import os
import random
import subprocess
import sys

from pyspark import SparkContext
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession

from paceline import MissingError
from paceline.spark import PacelineControl, PacelineEstimator, PacelineModel, PacelineSession

NET = """layer { name: 'data' type: 'Data' top: 'data' top: 'label' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }"""


def make_rows(spark):
    """Records of 9 numbers; the first one says the class."""
    draw = random.Random(1)
    rows = []
    for i in range(600):
        label = i % 2
        values = [draw.random() for _ in range(9)]
        values[0] += 2 * label
        rows.append((values, label, i >= 500))
    return spark.createDataFrame(rows, "values array<double>, label int, held boolean")


def expect_jar_is_missed():
    """A JVM is enough: the jar is missed before there is an application."""
    SparkContext._ensure_initialized()
    for use in (PacelineEstimator, lambda: PacelineSession(None), lambda: PacelineModel.load("model"),
                lambda: PacelineEstimator.load("estimator"), PacelineControl.stop):
        try:
            use()
        except MissingError as refused:
            assert "spark.jars=paceline-spark.jar" in str(refused), refused
        else:
            raise AssertionError("a JVM without the jar was used")
    print("[       OK ] test_python_misses_jar")


def run_without_jar():
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")}
    subprocess.run([sys.executable, __file__, "--without-jar"], env=own, check=True, timeout=120)


def train_on_stream(spark, rows, folder):
    """Micro-batches train one after the other; a later one learns next to nothing, and has the weights."""
    rows.repartition(2).write.parquet(folder + "/input")
    weights = folder + "/stream.safetensors"
    summaries = []

    def train(batch, _):
        estimator = PacelineEstimator(
            net=NET, featuresCol="values", validationIndicatorCol="held", classes=2, minWorkers=3,
            maxWorkers=3, epochs=8.0, batchSize=8, learningRate=0.1)
        if os.path.exists(weights):
            estimator.setInitialModel(weights).setEpochs(0.5).setLearningRate(1e-6)
        model = estimator.fit(batch)
        model.saveWeights(weights)
        summaries.append(model.summary)

    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(folder + "/input")
    stream.writeStream.trigger(availableNow=True).option("checkpointLocation", folder + "/query").foreachBatch(
        train).start().awaitTermination()
    assert len(summaries) == 2, summaries
    assert all(summary["test_error"] < 0.1 for summary in summaries), summaries


def main(folder):
    spark = SparkSession.builder.appName("spark-test-python").getOrCreate()
    try:
        rows = make_rows(spark).repartition(6)
        estimator = PacelineEstimator(
            net=NET, featuresCol="values", validationIndicatorCol="held", minWorkers=3,
            maxWorkers=3, strategy="sync", epochs=6.0, batchSize=8, learningRate=0.1)
        assert estimator.getEpochs() == 6.0 and estimator.getLabelCol() == "label"
        with PacelineSession(spark, idleSeconds=30) as session:
            model = Pipeline(stages=[estimator.setSession(session)]).fit(rows)
        summary = model.stages[0].summary
        assert summary["test_error"] < 0.1, summary
        assert summary["rows"] == 500 and summary["workers"] == 3, summary
        predicted = model.transform(rows.filter("held"))
        accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(predicted)
        assert abs(1 - accuracy - summary["test_error"]) < 0.003, accuracy

        model.write().overwrite().save(folder + "/model")
        loaded = PipelineModel.load(folder + "/model")
        assert isinstance(loaded.stages[0], PacelineModel)
        assert loaded.stages[0].summary == summary
        again = loaded.transform(rows.filter("held"))
        assert again.select("prediction").collect() == predicted.select("prediction").collect()

        train_on_stream(spark, rows, folder)

        estimator.setSeed(7).write().overwrite().save(folder + "/estimator")
        assert PacelineEstimator.load(folder + "/estimator").getSeed() == 7
        for count in 2, 0:
            PacelineControl.setWorkers(count)
        PacelineControl.stop()
        try:
            estimator.setFeaturesCol("picture").fit(rows)
        except Exception as refused:
            assert "featuresCol 'picture' is no column" in str(refused), refused
        else:
            raise AssertionError("a wrong column was accepted")
        try:
            estimator.setFeaturesCol("values").fit(rows)
        except Exception as refused:
            assert "the session is closed" in str(refused), refused
        else:
            raise AssertionError("a closed session was used")
    finally:
        spark.stop()
    print("[       OK ] test_python")
    run_without_jar()


if sys.argv[1] == "--without-jar":
    expect_jar_is_missed()
else:
    main(sys.argv[1])
