import java.nio.file.Path;
import java.util.Locale;
import org.apache.spark.ml.Pipeline;
import org.apache.spark.ml.PipelineModel;
import org.apache.spark.ml.PipelineStage;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import paceline.spark.PacelineEstimator;

/**
 * A Pipeline on the rows of a query, and its saved model in another application. bench/spark_sql.py submits it, and
 * does the same in Python.
 *
 *     FashionSql tables PARQUET FOLDER              writes the tables FOLDER/pictures and FOLDER/labels
 *     FashionSql fit FOLDER QUERY JOB MODEL         trains on the query's rows (image, label, test), saves the model
 *     FashionSql transform FOLDER QUERY MODEL
 *
 * The last two print the accuracy of the model on the query's rows with `test`.
 */
public final class FashionSql {
    private static final StructType PICTURES = new StructType().add("id", DataTypes.LongType)
            .add("image", DataTypes.BinaryType);
    private static final StructType LABELS = new StructType().add("id", DataTypes.LongType)
            .add("label", DataTypes.IntegerType).add("test", DataTypes.BooleanType);

    private FashionSql() {}

    public static void main(String[] args) throws Exception {
        try (SparkSession spark = SparkSession.builder().appName("fashion-sql").getOrCreate()) {
            switch (args[0]) {
                case "tables":
                    writeTables(spark, args[1], args[2]);
                    break;
                case "fit":
                    Dataset<Row> rows = query(spark, args[1], args[2]);
                    PipelineModel fitted = new Pipeline().setStages(new PipelineStage[] {estimator(args[3])}).fit(rows);
                    report(fitted, rows);
                    fitted.write().overwrite().save(args[4]);
                    break;
                case "transform":
                    report(PipelineModel.load(args[3]), query(spark, args[1], args[2]));
                    break;
                default:
                    throw new IllegalArgumentException("tables, fit or transform, and not " + args[0]);
            }
        }
    }

    private static PacelineEstimator estimator(String job) {
        return new PacelineEstimator().setJob(job).setFeaturesCol("image").setValidationIndicatorCol("test");
    }

    /** Each picture has a number, by which the tables are joined. */
    private static void writeTables(SparkSession spark, String parquet, String folder) {
        var numbered = FashionLenet.pictures(spark, parquet).select("image", "label", "test").javaRDD().zipWithIndex();
        spark.createDataFrame(numbered.map(one -> RowFactory.create(one._2(), one._1().get(0))), PICTURES)
                .write().parquet(Path.of(folder, "pictures").toString());
        var labels = numbered.map(one -> RowFactory.create(one._2(), one._1().get(1), one._1().get(2)));
        spark.createDataFrame(labels, LABELS).write().parquet(Path.of(folder, "labels").toString());
    }

    private static Dataset<Row> query(SparkSession spark, String folder, String text) {
        for (String table : new String[] {"pictures", "labels"}) {
            spark.read().parquet(Path.of(folder, table).toString()).createOrReplaceTempView(table);
        }
        return spark.sql(text);
    }

    private static void report(PipelineModel model, Dataset<Row> rows) {
        double accuracy = new MulticlassClassificationEvaluator().setMetricName("accuracy")
                .evaluate(model.transform(rows.filter("test")));
        System.out.println(String.format(Locale.ROOT, "accuracy %.6f of %d rows", accuracy, rows.count()));
    }
}
