package paceline.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.util.DefaultParamsReader;
import org.apache.spark.ml.util.DefaultParamsWritable;
import org.apache.spark.ml.util.Identifiable$;
import org.apache.spark.ml.util.MLReader;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;

/** Trains a net on the rows of a DataFrame, with a worker in each of Spark's executors. */
public final class PacelineEstimator extends EstimatorParams implements DefaultParamsWritable {
    private static final long serialVersionUID = 1;
    private static final String FINAL_MODEL = "final.safetensors";
    private static final String RUN_JOB = "job.prototxt";

    private transient PacelineSession session; // null: each fit has its own

    public PacelineEstimator(String uid) {
        super(uid);
    }

    public PacelineEstimator() {
        this(Identifiable$.MODULE$.randomUID("paceline"));
    }

    @Override
    PacelineEstimator self() {
        return this;
    }

    public static MLReader<PacelineEstimator> read() {
        return new DefaultParamsReader<>();
    }

    public static PacelineEstimator load(String path) {
        return read().load(path);
    }

    @Override
    public PacelineEstimator copy(ParamMap extra) {
        return this.<PacelineEstimator>defaultCopy(extra).setSession(session);
    }

    /** Fits use the workers of that session; null: each fit has its own. It is no parameter, and not saved. */
    public PacelineEstimator setSession(PacelineSession value) {
        session = value;
        return this;
    }

    @Override
    public StructType transformSchema(StructType schema) {
        RecordSchema.sourceOf(schema, getFeaturesCol());
        RecordSchema.checkLabel(schema, getLabelCol());
        if (!getValidationIndicatorCol().isEmpty()) {
            RecordSchema.checkIndicator(schema, getValidationIndicatorCol());
        }
        return PacelineModel.addColumns(schema, getPredictionCol(), getProbabilityCol());
    }

    @Override
    public PacelineModel fit(Dataset<?> data) {
        DriverEnd.get(); // first, because with another version of Spark any call may fail to link
        transformSchema(data.schema());
        if (getJob().isEmpty() && (getNet().isEmpty() || getEpochs() == 0)) {
            throw new PacelineException("there is no job: set net and epochs, or job");
        }
        if (getMaxWorkers() > 0 && getMaxWorkers() < getMinWorkers()) {
            throw new PacelineException("maxWorkers " + getMaxWorkers() + " is below minWorkers "
                    + getMinWorkers());
        }
        if (session != null) {
            return train(session, data.toDF());
        }
        try (PacelineSession own = new PacelineSession(data.sparkSession(), 0)) {
            return train(own, data.toDF());
        }
    }

    private PacelineModel train(PacelineSession within, Dataset<Row> data) {
        try {
            boolean keeps = !getCheckpointDir().isEmpty();
            Path directory = keeps ? Files.createDirectories(Paths.get(getCheckpointDir()))
                    : Files.createTempDirectory("paceline-");
            try {
                return train(within, data, directory);
            } finally {
                if (!keeps) {
                    delete(directory);
                }
            }
        } catch (IOException thrown) {
            throw new PacelineException("the run's directory: " + thrown.getMessage(), thrown);
        }
    }

    private PacelineModel train(PacelineSession within, Dataset<Row> data, Path directory) throws IOException {
        Fit.Plan plan = new Fit.Plan();
        plan.directory = directory.resolve("run");
        plan.shardDir = getShardDir();
        plan.minWorkers = getMinWorkers();
        plan.maxWorkers = getMaxWorkers();
        plan.patienceS = getPatience();
        plan.skipsBad = getOnBadRecord().equals("skip");
        plan.resumes = Files.exists(plan.directory.resolve(RUN_JOB));
        plan.job = describeJob(directory, plan.directory, plan.resumes);
        plan.pauses = getMinWorkers() > 1 && getBelowMinWorkers().equals("pause")
                && (isSet(belowMinWorkers()) || plan.job.mayPause(plan.resumes ? plan.directory : null));
        try (Fit fit = new Fit(within, plan)) {
            try {
                return train(fit, plan, data);
            } catch (Exception thrown) {
                fit.checkStopped(); // Spark says only that the jobs are cancelled
                throw thrown;
            }
        }
    }

    private PacelineModel train(Fit fit, Fit.Plan plan, Dataset<Row> data) throws IOException {
        Dataset<Row> rows = data.select(columns());
        fit.begin();
        plan.schema = fit.inspect(rows, RecordSchema.sourceOf(data.schema(), getFeaturesCol()),
                parseShape(), getTextLength(), getClasses());
        PacelineSummary summary = fit.train(rows);
        PacelineModel model = new PacelineModel(uid(), plan.schema,
                Files.readString(plan.directory.resolve(RUN_JOB)),
                Files.readAllBytes(plan.directory.resolve(FINAL_MODEL)), summary);
        return copyValues(model, ParamMap.empty()).setParent(this);
    }

    /** The columns in the order of Ingest. */
    private Column[] columns() {
        String test = getValidationIndicatorCol();
        return new Column[] {functions.col(quoted(getFeaturesCol())).as("features"),
                functions.col(quoted(getLabelCol())).as("label"),
                (test.isEmpty() ? functions.lit(false) : functions.col(quoted(test))).as("test")};
    }

    private static String quoted(String column) {
        return "`" + column.replace("`", "``") + "`";
    }

    private JobFields describeJob(Path directory, Path run, boolean resumes) throws IOException {
        JobFields job = new JobFields(getJob(), directory);
        if (!getNet().isEmpty()) {
            job.setNet(getNet());
        }
        if (!getStrategy().isEmpty()) {
            job.add("strategy." + getStrategy(), "{}");
        }
        if (getEpochs() > 0) {
            job.add("stop.epochs", Double.toString(getEpochs()));
        }
        if (getBatchSize() > 0) {
            job.add("batch", Integer.toString(getBatchSize()));
        }
        if (getLearningRate() > 0) {
            job.add("solver.base_lr", Double.toString(getLearningRate()));
        }
        if (isSet(seed())) {
            job.add("seed", Long.toString(getSeed()));
        }
        if (!getInitialModel().isEmpty()) {
            job.add("weights", JobFields.quoted(getInitialModel()));
        }
        job.check(resumes ? run : null);
        return job;
    }

    /** The shape that the user gives; null: none. */
    private int[] parseShape() {
        if (getShape().isEmpty()) {
            return null;
        }
        try {
            int[] shape = Stream.of(getShape().split("[,x]")).map(String::trim)
                    .mapToInt(Integer::parseInt).toArray();
            if (shape.length == 3 && Math.min(shape[0], Math.min(shape[1], shape[2])) > 0) {
                return shape;
            }
        } catch (NumberFormatException ignored) {
            // Said below.
        }
        throw new PacelineException("shape is '" + getShape()
                + "'; it must be channels, height and width, as 3,32,32");
    }

    private static void delete(Path directory) throws IOException {
        List<Path> inside;
        try (Stream<Path> walk = Files.walk(directory)) {
            inside = walk.sorted(Comparator.reverseOrder()).collect(Collectors.toList());
        }
        for (Path path : inside) {
            Files.deleteIfExists(path);
        }
    }
}
