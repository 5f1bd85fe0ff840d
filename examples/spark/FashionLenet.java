import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.zip.GZIPInputStream;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import paceline.spark.PacelineEstimator;
import paceline.spark.PacelineModel;
import paceline.spark.PacelineSummary;

/**
 * LeNet on Fashion-MNIST from a DataFrame: `./run spark` submits it to a cluster of three workers.
 *
 *     FashionLenet PARQUET [EPOCHS [WORKERS [CHECKPOINTS [STRATEGY]]]]
 *
 * Where the folder PARQUET does not exist, the pictures of the Debian package dataset-fashion-mnist
 * are written there first.
 */
public final class FashionLenet {
    private static final String DATA = "/usr/share/datasets/fashion-mnist/";
    static final int TRAIN = 60_000;
    static final int TEST = 10_000;
    private static final int PARTS = 12;
    private static final int SIDE = 28;
    private static final StructType ROW = new StructType()
            .add("image", DataTypes.BinaryType)
            .add("label", DataTypes.IntegerType)
            .add("test", DataTypes.BooleanType);

    private FashionLenet() {}

    public static void main(String[] args) throws Exception {
        double epochs = args.length > 1 ? Double.parseDouble(args[1]) : 5;
        int workers = args.length > 2 ? Integer.parseInt(args[2]) : 3;
        long from = System.nanoTime();
        try (SparkSession spark = SparkSession.builder().appName("fashion-lenet").getOrCreate()) {
            say("Spark %s after %.1f s", spark.version(), (System.nanoTime() - from) / 1e9);
            long step = System.nanoTime();
            Dataset<Row> pictures = pictures(spark, args[0]);
            say("the rows are in %s after %.1f s", args[0], (System.nanoTime() - step) / 1e9);

            PacelineEstimator estimator = new PacelineEstimator()
                    .setNet("lenet").setFeaturesCol("image").setValidationIndicatorCol("test")
                    .setStrategy(args.length > 4 ? args[4] : "sync").setLearningRate(0.04).setBatchSize(64)
                    .setEpochs(epochs).setMinWorkers(workers).setMaxWorkers(workers)
                    .setBelowMinWorkers("continue"); // without one that is lost
            if (args.length > 3) {
                estimator.setCheckpointDir(args[3]);
            }
            step = System.nanoTime();
            PacelineModel model = estimator.fit(pictures);
            double fitS = (System.nanoTime() - step) / 1e9;

            step = System.nanoTime();
            double accuracy = new MulticlassClassificationEvaluator().setMetricName("accuracy")
                    .evaluate(model.transform(pictures.filter("test")));
            report(model.summary(), fitS, 1 - accuracy, (System.nanoTime() - step) / 1e9);
        }
    }

    private static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
    }

    private static void report(PacelineSummary summary, double fitS, double error, double transformS) {
        say("test error         %.4f", summary.testError());
        say("error by transform %.4f", error);
        say("samples/s          %.0f", summary.samplesPerSecond());
        say("records            used %d, repeated %d, missed %d", summary.used(), summary.repeated(),
                summary.missed());
        say("seconds            executors %.1f, ingest %.1f, training %.1f; fit %.1f, transform %.1f",
                summary.seconds("executors"), summary.seconds("ingest"), summary.seconds("training"), fitS,
                transformS);
    }

    /** The pictures as a DataFrame, from Parquet. */
    static Dataset<Row> pictures(SparkSession spark, String folder) {
        org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(folder, "_SUCCESS");
        try {
            if (!path.getFileSystem(spark.sparkContext().hadoopConfiguration()).exists(path)) {
                write(spark, folder);
            }
        } catch (IOException thrown) {
            throw new IllegalStateException(folder + ": " + thrown.getMessage(), thrown);
        }
        return spark.read().parquet(folder);
    }

    /** Each task reads its part of the files, which are on every machine. */
    private static void write(SparkSession spark, String folder) {
        spark.createDataFrame(
                spark.range(0, PARTS, 1, PARTS).javaRDD().flatMap(part -> {
                    List<Row> rows = new ArrayList<>(part(part.intValue(), PARTS, "train", TRAIN, false));
                    rows.addAll(part(part.intValue(), PARTS, "t10k", TEST, true));
                    return rows.iterator();
                }), ROW).write().mode("overwrite").parquet(folder);
    }

    /** Part `part` of `parts` of a set. */
    static List<Row> part(int part, int parts, String set, int count, boolean test) throws IOException {
        int from = (int) ((long) count * part / parts);
        int to = (int) ((long) count * (part + 1) / parts);
        Row[] rows = new Row[to - from];
        try (DataInputStream images = open(set + "-images-idx3-ubyte.gz", 16);
                DataInputStream labels = open(set + "-labels-idx1-ubyte.gz", 8)) {
            images.skipNBytes((long) from * SIDE * SIDE);
            labels.skipNBytes(from);
            for (int i = 0; i < rows.length; i++) {
                byte[] image = new byte[SIDE * SIDE];
                images.readFully(image);
                rows[i] = RowFactory.create(image, labels.readUnsignedByte(), test);
            }
        }
        return Arrays.asList(rows);
    }

    /** A file of IDX, behind its header. */
    private static DataInputStream open(String name, int header) throws IOException {
        InputStream file = new FileInputStream(DATA + name);
        DataInputStream in = new DataInputStream(new GZIPInputStream(file, 1 << 16));
        in.skipNBytes(header);
        return in;
    }
}
