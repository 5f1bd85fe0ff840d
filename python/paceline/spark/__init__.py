"""Train nets with Paceline in Spark's executors, from Python.

The classes wrap those of the Java package of the same name: a saved model is found by that name.
The application needs spark.jars=paceline-spark.jar and spark.plugins=paceline.spark.PacelinePlugin.
"""

# Spark has no hints of types, and may not be installed where they are checked.
# mypy: disable-error-code="import-not-found,import-untyped"
import json

from py4j.java_gateway import JavaPackage
from pyspark import SparkContext
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import JavaMLReadable, JavaMLWritable
from pyspark.ml.wrapper import JavaEstimator, JavaModel, JavaWrapper

__all__ = ["PacelineControl", "PacelineEstimator", "PacelineModel", "PacelineSession"]

_MODEL_PARAMS = {
    "featuresCol": (TypeConverters.toString, "column of the records"),
    "predictionCol": (TypeConverters.toString, "column that the model adds: the class"),
    "probabilityCol": (TypeConverters.toString, "column that the model adds: the scores"),
}
_PARAMS = {
    **_MODEL_PARAMS,
    "labelCol": (TypeConverters.toString, "column of the labels"),
    "validationIndicatorCol": (TypeConverters.toString, "boolean column: rows to test on"),
    "job": (TypeConverters.toString, "a job: its text, or its path at the driver"),
    "net": (TypeConverters.toString, "a net of the zoo, a file of Caffe's, or its text"),
    "shape": (TypeConverters.toString, "channels, height and width of a record"),
    "textLength": (TypeConverters.toInt, "bytes of a string's record"),
    "classes": (TypeConverters.toInt, "number of classes; 0: by the labels"),
    "strategy": (TypeConverters.toString, "the training strategy"),
    "minWorkers": (TypeConverters.toInt, "workers with which the run begins"),
    "maxWorkers": (TypeConverters.toInt, "workers that there may be; 0: one on each executor"),
    "belowMinWorkers": (TypeConverters.toString, "with fewer workers than minWorkers: pause or continue"),
    "epochs": (TypeConverters.toFloat, "epochs after which the run ends"),
    "batchSize": (TypeConverters.toInt, "records of a worker's step"),
    "learningRate": (TypeConverters.toFloat, "the solver's base_lr"),
    "seed": (TypeConverters.toInt, "seed of initial weights, order and dropout"),
    "checkpointDir": (TypeConverters.toString, "the run's directory"),
    "shardDir": (TypeConverters.toString, "a folder shared by all executors, for packed rows; or local:, their own disks"),
    "initialModel": (TypeConverters.toString, "file of the initial weights, at the driver"),
    "onBadRecord": (TypeConverters.toString, "a bad row: stop or skip"),
    "patience": (TypeConverters.toInt, "seconds to wait for executors and workers"),
}


def _with_params(params):
    """Give a class its parameters, with a getter and a setter of each."""

    def decorate(cls):
        for name, (converter, doc) in params.items():
            param = Param(Params._dummy(), name, doc, typeConverter=converter)
            setattr(cls, name, param)
            suffix = name[0].upper() + name[1:]

            def get(self, name=name):
                return self.getOrDefault(self.getParam(name))

            def put(self, value, name=name):
                return self._set(**{name: value})

            setattr(cls, "get" + suffix, get)
            setattr(cls, "set" + suffix, put)
        return cls

    return decorate


def _java_package():
    """The Java package of the module's classes. Py4J takes a class that does not exist for one more package."""
    package = SparkContext._jvm.paceline.spark
    if isinstance(package.PacelineEstimator, JavaPackage):
        from .._errors import MissingError
        raise MissingError("the application has no Paceline classes: set spark.jars=paceline-spark.jar and"
                           " spark.plugins=paceline.spark.PacelinePlugin before the session is created")
    return package


class _Readable(JavaMLReadable):
    @classmethod
    def read(cls):
        """A reader of saved ones."""
        _java_package()
        return super().read()


class PacelineSession(JavaWrapper):
    """Workers that stay for several fits, until they are idle for so long, or until close."""

    def __init__(self, spark, idleSeconds=60):
        _java_package()
        super().__init__(self._new_java_obj("paceline.spark.PacelineSession", spark._jsparkSession, idleSeconds))

    def close(self):
        """End the fit that is in progress, and all workers."""
        self._java_obj.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@_with_params(_MODEL_PARAMS)
class PacelineModel(JavaModel, JavaMLWritable, _Readable):
    """A trained net: it adds a class and the scores of all classes to each row."""

    @property
    def summary(self):
        """What the fit has done, as a dict: test_error, samples, seconds and others."""
        return json.loads(self._java_obj.summary().json())

    @property
    def job(self):
        """The job with all its defaults."""
        return self._java_obj.job()

    def saveWeights(self, path):
        """Write the weights, as safetensors, to a file of the driver's machine."""
        self._java_obj.saveWeights(path)


@_with_params(_PARAMS)
class PacelineEstimator(JavaEstimator, JavaMLWritable, _Readable):
    """Trains a net on the rows of a DataFrame, with a worker in each of Spark's executors."""

    def __init__(self, **params):
        super().__init__()
        _java_package()
        self._java_obj = self._new_java_obj("paceline.spark.PacelineEstimator", self.uid)
        self._transfer_params_from_java()
        self._set(**params)

    def setSession(self, session):
        """Use the workers of that session for each fit; None: each fit has its own. It is not saved."""
        self._java_obj.setSession(session and session._java_obj)
        return self

    def _create_model(self, java_model):
        return PacelineModel(java_model)


class PacelineControl:
    """What a program may change while fits of its application run, from any of its threads."""

    @staticmethod
    def setWorkers(count):
        """So many workers from now on, within a fit's minWorkers and maxWorkers; 0: the most."""
        _java_package().PacelineControl.setWorkers(count)

    @staticmethod
    def stop():
        """Fits end after their next exchange, with the model that they have by then."""
        _java_package().PacelineControl.stop()
