import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import paceline.spark.PacelineEstimator;

/**
 * Fits in one application, one after the other, on numbers that say their class. It prints a line after each, and
 * pauses after some. bench/spark_fits.py submits it, and measures its processes in the pauses.
 *
 *     ManyFits FITS EVERY PAUSE_S [WORKERS]
 */
public final class ManyFits {
    private static final int ROWS = 3000;
    private static final int VALUES = 144;
    private static final int PARTS = 6;
    private static final String NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'hidden' type: 'InnerProduct' bottom: 'data' top: 'hidden'\n"
            + "  inner_product_param { num_output: 64 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'relu' type: 'ReLU' bottom: 'hidden' top: 'hidden' }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'hidden' top: 'ip'\n"
            + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

    private ManyFits() {}

    public static void main(String[] args) throws Exception {
        int fits = Integer.parseInt(args[0]);
        int every = Integer.parseInt(args[1]);
        long pauseMs = Math.round(Double.parseDouble(args[2]) * 1000);
        int workers = args.length > 3 ? Integer.parseInt(args[3]) : 3;
        try (SparkSession spark = SparkSession.builder().appName("many-fits").getOrCreate()) {
            Dataset<Row> rows = rows(spark).repartition(PARTS).cache();
            PacelineEstimator estimator = new PacelineEstimator().setNet(NET).setFeaturesCol("values").setClasses(2)
                    .setStrategy("sync").setBatchSize(32).setEpochs(1).setMinWorkers(workers).setMaxWorkers(workers);
            for (int fit = 1; fit <= fits; fit++) {
                estimator.fit(rows);
                System.out.println("fit " + fit);
                Thread.sleep(fit % every == 0 || fit == fits ? pauseMs : 0);
            }
        }
    }

    private static Dataset<Row> rows(SparkSession spark) {
        Random random = new Random(1);
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < ROWS; i++) {
            float[] values = new float[VALUES];
            for (int k = 0; k < VALUES; k++) {
                values[k] = random.nextFloat() + (k == i % 2 ? 1 : 0);
            }
            rows.add(RowFactory.create(values, i % 2));
        }
        return spark.createDataFrame(rows, new StructType()
                .add("values", DataTypes.createArrayType(DataTypes.FloatType)).add("label", DataTypes.IntegerType));
    }
}
