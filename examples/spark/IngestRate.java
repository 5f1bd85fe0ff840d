import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import paceline.spark.PacelineEstimator;

/**
 * How long a fit takes to bring rows into its executor, against a job that only reads them, in turns. The rows have
 * 3,072 bytes and a label each, and are in Parquet. bench/spark_ingest.py submits it.
 *
 *     IngestRate PARQUET [TURNS [ROWS]]
 */
public final class IngestRate {
    private static final int BYTES = 3072;
    private static final int CLASSES = 10;
    private static final int PARTS = 4;
    private static final String NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
            + "  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

    private IngestRate() {}

    public static void main(String[] args) throws Exception {
        int turns = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        int count = args.length > 2 ? Integer.parseInt(args[2]) : 50_000;
        try (SparkSession spark = SparkSession.builder().appName("ingest-rate").getOrCreate()) {
            write(spark, args[0], count);
            PacelineEstimator estimator = new PacelineEstimator().setNet(NET).setFeaturesCol("values")
                    .setClasses(CLASSES).setStrategy("sync").setBatchSize(64).setEpochs(0.05).setLearningRate(0.001)
                    .setMinWorkers(1).setMaxWorkers(1);
            for (int turn = 0; turn <= turns; turn++) { // the first one warms both up
                double readS = read(spark.read().parquet(args[0]), count); // both plan their queries
                double ingestS = estimator.fit(spark.read().parquet(args[0])).summary().seconds("ingest");
                System.out.println(String.format(Locale.ROOT, "turn %d: read %.3f s, ingest %.3f s", turn, readS,
                        ingestS));
            }
        }
    }

    private static void write(SparkSession spark, String folder, int count) {
        spark.createDataFrame(spark.range(0, PARTS, 1, PARTS).javaRDD().flatMap(part -> {
            Random random = new Random(part);
            List<Row> rows = new ArrayList<>();
            for (int i = part.intValue(); i < count; i += PARTS) {
                byte[] values = new byte[BYTES];
                random.nextBytes(values);
                rows.add(RowFactory.create(values, i % CLASSES));
            }
            return rows.iterator();
        }), new StructType().add("values", DataTypes.BinaryType).add("label", DataTypes.IntegerType))
                .write().mode("overwrite").parquet(folder);
    }

    /** What it needs of a row: its bytes and its label. */
    private static double read(Dataset<Row> rows, int count) {
        long from = System.nanoTime();
        long bytes = rows.javaRDD().mapPartitions(IngestRate::bytes).reduce(Long::sum);
        if (bytes != (long) count * BYTES) {
            throw new IllegalStateException(bytes + " bytes were read");
        }
        return (System.nanoTime() - from) / 1e9;
    }

    private static Iterator<Long> bytes(Iterator<Row> rows) {
        long bytes = 0;
        while (rows.hasNext()) {
            Row row = rows.next();
            bytes += ((byte[]) row.get(0)).length + Math.min(0, row.getInt(1));
        }
        return List.of(bytes).iterator();
    }
}
