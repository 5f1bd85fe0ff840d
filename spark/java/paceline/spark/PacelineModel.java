package paceline.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.ml.Model;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.util.DefaultParamsReader;
import org.apache.spark.ml.util.DefaultParamsWriter;
import org.apache.spark.ml.util.Identifiable$;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.ml.util.MLWritable;
import org.apache.spark.ml.util.MLWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** A trained net: it adds a class and the scores of all classes to each row. */
public final class PacelineModel extends Model<PacelineModel> implements MLWritable {
    private static final long serialVersionUID = 1;
    private static final String WEIGHTS_FILE = "model.safetensors";
    private static final String JOB_FILE = "job.prototxt";
    private static final String SHAPE_FILE = "shape";
    private static final String SUMMARY_FILE = "summary.json";

    private final String uid;
    private final Param<String> featuresCol;
    private final Param<String> predictionCol;
    private final Param<String> probabilityCol;
    private final RecordSchema schema;
    private final String job;
    private final byte[] weights;
    private final PacelineSummary summary;

    PacelineModel(String uid, RecordSchema schema, String job, byte[] weights,
            PacelineSummary summary) {
        this.uid = uid;
        this.schema = schema;
        this.job = job;
        this.weights = weights;
        this.summary = summary;
        featuresCol = new Param<>(this, "featuresCol", "column of the records");
        setDefault(featuresCol, "features");
        predictionCol = new Param<>(this, "predictionCol", "column to add: the class");
        setDefault(predictionCol, "prediction");
        probabilityCol =
                new Param<>(this, "probabilityCol", "column to add: the scores of all classes");
        setDefault(probabilityCol, "probability");
    }

    @Override
    public String uid() {
        return uid;
    }

    public Param<String> featuresCol() {
        return featuresCol;
    }

    public Param<String> predictionCol() {
        return predictionCol;
    }

    public Param<String> probabilityCol() {
        return probabilityCol;
    }

    public PacelineModel setFeaturesCol(String value) {
        set(featuresCol, value);
        return this;
    }

    public PacelineModel setPredictionCol(String value) {
        set(predictionCol, value);
        return this;
    }

    public PacelineModel setProbabilityCol(String value) {
        set(probabilityCol, value);
        return this;
    }

    /** What the fit has done. */
    public PacelineSummary summary() {
        return summary;
    }

    /** The job with all its defaults. */
    public String job() {
        return job;
    }

    /** Write the weights, as safetensors, to a new file of this machine. */
    public void saveWeights(String file) throws IOException {
        java.nio.file.Files.write(java.nio.file.Paths.get(file), weights);
    }

    @Override
    public PacelineModel copy(ParamMap extra) {
        PacelineModel copy = new PacelineModel(uid, schema, job, weights, summary);
        return copyValues(copy, extra).setParent(parent());
    }

    static StructType addColumns(StructType schema, String prediction, String probability) {
        for (String column : new String[] {prediction, probability}) {
            if (schema.getFieldIndex(column).isDefined()) {
                throw new PacelineException("the rows have a column '" + column
                        + "' already; set another predictionCol or probabilityCol");
            }
        }
        StructType more = probability.isEmpty() ? schema
                : schema.add(probability, SQLDataTypes.VectorType(), true);
        return more.add(prediction, DataTypes.DoubleType, true);
    }

    @Override
    public StructType transformSchema(StructType columns) {
        RecordSchema.Source source = RecordSchema.sourceOf(columns, string(featuresCol));
        if (source != schema.source) {
            throw new PacelineException("featuresCol '" + string(featuresCol) + "' is " + source
                    + ", and the model was trained on " + schema.source);
        }
        return addColumns(columns, string(predictionCol), string(probabilityCol));
    }

    private String string(Param<String> param) {
        return getOrDefault(param);
    }

    @Override
    public Dataset<Row> transform(Dataset<?> data) {
        StructType columns = transformSchema(data.schema());
        JavaSparkContext context =
                JavaSparkContext.fromSparkContext(data.sparkSession().sparkContext());
        Predict task = new Predict(context.broadcast(weights), job, schema,
                data.schema().fieldIndex(string(featuresCol)), !string(probabilityCol).isEmpty());
        return data.toDF().mapPartitions(task, Encoders.row(columns));
    }

    @Override
    public MLWriter write() {
        return new Writer(this);
    }

    public static MLReader<PacelineModel> read() {
        return new Reader();
    }

    public static PacelineModel load(String path) {
        return read().load(path);
    }

    private static final class Writer extends MLWriter {
        private final PacelineModel model;

        Writer(PacelineModel model) {
            this.model = model;
        }

        @Override
        @SuppressWarnings("deprecation") // the form that Spark 3.5 and 4 both have
        public void saveImpl(String path) {
            DefaultParamsWriter.saveMetadata(model, path, sc(), scala.Option.empty(),
                    scala.Option.empty());
            try {
                put(path, WEIGHTS_FILE, model.weights);
                put(path, JOB_FILE, model.job.getBytes(StandardCharsets.UTF_8));
                put(path, SHAPE_FILE, model.schema.text().getBytes(StandardCharsets.UTF_8));
                put(path, SUMMARY_FILE, model.summary.json().getBytes(StandardCharsets.UTF_8));
            } catch (IOException thrown) {
                throw new PacelineException("writing " + path + ": " + thrown.getMessage(), thrown);
            }
        }

        private void put(String folder, String name, byte[] bytes) throws IOException {
            Path path = new Path(folder, name);
            Configuration configuration = sc().hadoopConfiguration();
            try (OutputStream out = path.getFileSystem(configuration).create(path, false)) {
                out.write(bytes);
            }
        }
    }

    private static final class Reader extends MLReader<PacelineModel> {
        @Override
        @SuppressWarnings("deprecation")
        public PacelineModel load(String path) {
            DefaultParamsReader.Metadata metadata =
                    DefaultParamsReader.loadMetadata(path, sc(), PacelineModel.class.getName());
            try {
                PacelineModel model = new PacelineModel(metadata.uid(),
                        RecordSchema.of(new String(get(path, SHAPE_FILE), StandardCharsets.UTF_8)),
                        new String(get(path, JOB_FILE), StandardCharsets.UTF_8), get(path, WEIGHTS_FILE),
                        new PacelineSummary(new String(get(path, SUMMARY_FILE), StandardCharsets.UTF_8)));
                metadata.getAndSetParams(model, scala.Option.empty());
                return model;
            } catch (IOException thrown) {
                throw new PacelineException("reading " + path + ": " + thrown.getMessage(), thrown);
            }
        }

        private byte[] get(String folder, String name) throws IOException {
            Path path = new Path(folder, name);
            FileSystem files = path.getFileSystem(sc().hadoopConfiguration());
            try (InputStream in = files.open(path)) {
                return in.readAllBytes();
            }
        }
    }
}
