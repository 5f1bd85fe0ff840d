package paceline.spark;

import static paceline.spark.TestCases.check;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** What rows an estimator trains on, and which nets do not go with them; SparkTest has the application. */
final class EstimatorTest {
    private static final int VALUES = 9;
    private static final int ROWS = 600;
    private static final int HELD = 100;
    private static final String NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
            + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

    private EstimatorTest() {}

    /** Records whose first number says the class: those of class 1 have it above 1, and most others are 0. */
    static Dataset<Row> vectors(SparkSession spark) {
        Random random = new Random(1);
        List<Row> all = new ArrayList<>();
        for (int i = 0; i < ROWS; i++) {
            double[] values = new double[VALUES];
            values[0] = random.nextDouble() + 2 * (i % 2);
            values[1 + random.nextInt(VALUES - 1)] = random.nextDouble();
            Vector dense = Vectors.dense(values);
            all.add(RowFactory.create(i % 4 < 2 ? dense : dense.toSparse(), i % 2, i >= ROWS - HELD));
        }
        return spark.createDataFrame(all, new StructType().add("features", SQLDataTypes.VectorType())
                .add("label", DataTypes.IntegerType).add("held", DataTypes.BooleanType)).repartition(6).cache();
    }

    static PacelineEstimator estimator() {
        return new PacelineEstimator().setNet(NET).setEpochs(4).setBatchSize(8).setLearningRate(0.1).setClasses(2)
                .setMinWorkers(SparkTest.EXECUTORS).setMaxWorkers(SparkTest.EXECUTORS);
    }

    /** Sparse vectors and dense ones in one column; the same numbers have the same scores. */
    static void vectorsAreClassified(SparkSession spark) {
        Dataset<Row> rows = vectors(spark);
        PacelineModel model = estimator().setValidationIndicatorCol("held").fit(rows);
        check(model.summary().rows() == ROWS - HELD && model.summary().badRows() == 0, model.summary().json());
        check(model.summary().testError() < 0.1, "test error: " + model.summary().json());
        Dataset<Row> held = model.transform(rows.filter("held"));
        check(held.filter("prediction = label").count() > HELD * 9 / 10, "predictions");

        List<Row> same = new ArrayList<>();
        for (double first : new double[] {0.25, 2.75}) {
            double[] values = new double[VALUES];
            values[0] = first;
            values[VALUES - 1] = 0.5;
            same.add(RowFactory.create(Vectors.dense(values)));
            same.add(RowFactory.create(Vectors.sparse(VALUES, new int[] {0, VALUES - 1}, new double[] {first, 0.5})));
        }
        List<Row> scores = model.transform(spark.createDataFrame(same,
                new StructType().add("features", SQLDataTypes.VectorType())).coalesce(1)).collectAsList();
        for (int i = 0; i < same.size(); i++) {
            check(scores.get(i).getDouble(2) == i / 2, "class of " + scores.get(i));
            check(scores.get(i).get(1).equals(scores.get(i / 2 * 2).get(1)), "scores of " + scores.get(i));
        }
        rows.unpersist();
    }

    static void netsThatDoNotFitAreRefused(SparkTest test) throws Exception {
        test.expectError(test.estimator().setNet("lenet"), test.rows, "layer \"conv2\": the kernel, 5x5",
                "the padded image, 4x4", "give larger records");
        test.expectError(test.estimator().setShape("1,2,72"), test.rows, "layer \"conv\": the kernel, 3x3",
                "the padded image, 2x72");
        test.expectError(test.estimator(), test.rows.withColumn("label", test.rows.col("label").multiply(5)),
                "label 10 is out of range: the net has 3 classes; set num_output of its last layer to 11");
    }

    /** It comes from a file with its hash in its name, in a folder that Spark deletes with the executor. */
    static void expectLibraryInLocalFolder(SparkSession spark, long pid) throws IOException {
        String local = spark.sparkContext().getConf().get("spark.local.dir");
        List<String> files = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("/proc/" + pid + "/maps"))) {
            if (line.contains("libpaceline-jni")) {
                files.add(line.substring(line.indexOf('/')));
            }
        }
        check(!files.isEmpty(), "process " + pid + " has no library");
        for (String file : files) {
            check(file.startsWith(local + "/"), "the library comes from " + file + ", not from below " + local);
            check(file.matches(".*/blockmgr-[^/]*/paceline-[^/]*/libpaceline-jni-[0-9a-f]{64}\\.so \\(deleted\\)"), file);
        }
    }
}
