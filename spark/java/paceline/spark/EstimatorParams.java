package paceline.spark;

import java.util.List;
import org.apache.spark.ml.Estimator;
import org.apache.spark.ml.param.DoubleParam;
import org.apache.spark.ml.param.IntParam;
import org.apache.spark.ml.param.LongParam;
import org.apache.spark.ml.param.Param;
import org.apache.spark.ml.param.ParamValidators;

/** The parameters of PacelineEstimator. Spark finds each by the method of its name. */
public abstract class EstimatorParams extends Estimator<PacelineModel> {
    private static final long serialVersionUID = 1;

    private final String uid;
    private final Param<String> job;
    private final Param<String> net;
    private final Param<String> featuresCol;
    private final Param<String> labelCol;
    private final Param<String> predictionCol;
    private final Param<String> probabilityCol;
    private final Param<String> validationIndicatorCol;
    private final Param<String> shape;
    private final IntParam textLength;
    private final IntParam classes;
    private final Param<String> strategy;
    private final IntParam minWorkers;
    private final IntParam maxWorkers;
    private final Param<String> belowMinWorkers;
    private final DoubleParam epochs;
    private final IntParam batchSize;
    private final DoubleParam learningRate;
    private final LongParam seed;
    private final Param<String> checkpointDir;
    private final Param<String> shardDir;
    private final Param<String> initialModel;
    private final Param<String> onBadRecord;
    private final IntParam patience;

    EstimatorParams(String uid) {
        this.uid = uid;
        job = new Param<>(this, "job",
                "a job: its text, or the path of its file at the driver; empty: the other "
                + "parameters say all");
        setDefault(job, "");
        net = new Param<>(this, "net",
                "the net: the name of one of the zoo, the path of a file of Caffe's, or its "
                + "text; empty: the job's");
        setDefault(net, "");
        featuresCol = new Param<>(this, "featuresCol",
                "column of the records: binary, a string, a vector, or an array of numbers");
        setDefault(featuresCol, "features");
        labelCol = new Param<>(this, "labelCol",
                "column of the labels, numbers from 0 to classes - 1");
        setDefault(labelCol, "label");
        predictionCol = new Param<>(this, "predictionCol",
                "column that the model adds: the class");
        setDefault(predictionCol, "prediction");
        probabilityCol = new Param<>(this, "probabilityCol",
                "column that the model adds: the scores of all classes; empty: none");
        setDefault(probabilityCol, "probability");
        validationIndicatorCol = new Param<>(this, "validationIndicatorCol",
                "boolean column: rows on which the driver tests instead of training; empty: "
                + "none");
        setDefault(validationIndicatorCol, "");
        shape = new Param<>(this, "shape",
                "channels, height and width of a record, as 3,32,32; empty: a square picture "
                + "where the number of values allows it, else a vector");
        setDefault(shape, "");
        textLength = new IntParam(this, "textLength",
                "bytes of a string's record: longer ones are cut, zeros follow shorter ones", ParamValidators.gt(0));
        setDefault(textLength, 256);
        classes = new IntParam(this, "classes",
                "number of classes; 0: one more than the highest label", ParamValidators.gtEq(0));
        setDefault(classes, 0);
        strategy = new Param<>(this, "strategy",
                "the training strategy; empty: the job's");
        setDefault(strategy, "");
        minWorkers = new IntParam(this, "minWorkers",
                "workers with which the run begins", ParamValidators.gtEq(1));
        setDefault(minWorkers, 1);
        maxWorkers = new IntParam(this, "maxWorkers",
                "workers that there may be; 0: one on each executor", ParamValidators.gtEq(0));
        setDefault(maxWorkers, 0);
        belowMinWorkers = new Param<>(this, "belowMinWorkers",
                "with fewer workers than minWorkers: pause until there are enough, or continue with those that are "
                + "left",
                ParamValidators.inArray(List.of("pause", "continue")));
        setDefault(belowMinWorkers, "pause");
        epochs = new DoubleParam(this, "epochs",
                "epochs after which the run ends; 0: the job's stop", ParamValidators.gtEq(0));
        setDefault(epochs, 0.0);
        batchSize = new IntParam(this, "batchSize",
                "records of a worker's step; 0: the job's", ParamValidators.gtEq(0));
        setDefault(batchSize, 0);
        learningRate = new DoubleParam(this, "learningRate",
                "the solver's base_lr; 0: the job's", ParamValidators.gtEq(0));
        setDefault(learningRate, 0.0);
        seed = new LongParam(this, "seed",
                "seed of initial weights, order and dropout", ParamValidators.gtEq(0));
        setDefault(seed, 1L);
        checkpointDir = new Param<>(this, "checkpointDir",
                "the run's directory, in which a later fit continues; empty: a temporary one");
        setDefault(checkpointDir, "");
        shardDir = new Param<>(this, "shardDir",
                "folder that the driver and all executors share, into which rows are packed; or local:, where files "
                + "stay in the executors, and workers read them by HTTP; empty: rows stay in the executors that read "
                + "them");
        setDefault(shardDir, "");
        initialModel = new Param<>(this, "initialModel",
                "file of the initial weights, at the driver; empty: random ones");
        setDefault(initialModel, "");
        onBadRecord = new Param<>(this, "onBadRecord",
                "a row with a null, a wrong length or a wrong label: stop or skip",
                ParamValidators.inArray(List.of("stop", "skip")));
        setDefault(onBadRecord, "stop");
        patience = new IntParam(this, "patience",
                "seconds to wait for executors and workers", ParamValidators.gt(0));
        setDefault(patience, 120);
    }

    abstract PacelineEstimator self();

    @Override
    public String uid() {
        return uid;
    }

    public Param<String> job() {
        return job;
    }

    public PacelineEstimator setJob(String value) {
        set(job, value);
        return self();
    }

    public String getJob() {
        return getOrDefault(job);
    }

    public Param<String> net() {
        return net;
    }

    public PacelineEstimator setNet(String value) {
        set(net, value);
        return self();
    }

    public String getNet() {
        return getOrDefault(net);
    }

    public Param<String> featuresCol() {
        return featuresCol;
    }

    public PacelineEstimator setFeaturesCol(String value) {
        set(featuresCol, value);
        return self();
    }

    public String getFeaturesCol() {
        return getOrDefault(featuresCol);
    }

    public Param<String> labelCol() {
        return labelCol;
    }

    public PacelineEstimator setLabelCol(String value) {
        set(labelCol, value);
        return self();
    }

    public String getLabelCol() {
        return getOrDefault(labelCol);
    }

    public Param<String> predictionCol() {
        return predictionCol;
    }

    public PacelineEstimator setPredictionCol(String value) {
        set(predictionCol, value);
        return self();
    }

    public String getPredictionCol() {
        return getOrDefault(predictionCol);
    }

    public Param<String> probabilityCol() {
        return probabilityCol;
    }

    public PacelineEstimator setProbabilityCol(String value) {
        set(probabilityCol, value);
        return self();
    }

    public String getProbabilityCol() {
        return getOrDefault(probabilityCol);
    }

    public Param<String> validationIndicatorCol() {
        return validationIndicatorCol;
    }

    public PacelineEstimator setValidationIndicatorCol(String value) {
        set(validationIndicatorCol, value);
        return self();
    }

    public String getValidationIndicatorCol() {
        return getOrDefault(validationIndicatorCol);
    }

    public Param<String> shape() {
        return shape;
    }

    public PacelineEstimator setShape(String value) {
        set(shape, value);
        return self();
    }

    public String getShape() {
        return getOrDefault(shape);
    }

    public IntParam textLength() {
        return textLength;
    }

    public PacelineEstimator setTextLength(int value) {
        set(textLength, value);
        return self();
    }

    public int getTextLength() {
        return (Integer) getOrDefault(textLength);
    }

    public IntParam classes() {
        return classes;
    }

    public PacelineEstimator setClasses(int value) {
        set(classes, value);
        return self();
    }

    public int getClasses() {
        return (Integer) getOrDefault(classes);
    }

    public Param<String> strategy() {
        return strategy;
    }

    public PacelineEstimator setStrategy(String value) {
        set(strategy, value);
        return self();
    }

    public String getStrategy() {
        return getOrDefault(strategy);
    }

    public IntParam minWorkers() {
        return minWorkers;
    }

    public PacelineEstimator setMinWorkers(int value) {
        set(minWorkers, value);
        return self();
    }

    public int getMinWorkers() {
        return (Integer) getOrDefault(minWorkers);
    }

    public IntParam maxWorkers() {
        return maxWorkers;
    }

    public PacelineEstimator setMaxWorkers(int value) {
        set(maxWorkers, value);
        return self();
    }

    public int getMaxWorkers() {
        return (Integer) getOrDefault(maxWorkers);
    }

    public Param<String> belowMinWorkers() {
        return belowMinWorkers;
    }

    public PacelineEstimator setBelowMinWorkers(String value) {
        set(belowMinWorkers, value);
        return self();
    }

    public String getBelowMinWorkers() {
        return getOrDefault(belowMinWorkers);
    }

    public DoubleParam epochs() {
        return epochs;
    }

    public PacelineEstimator setEpochs(double value) {
        set(epochs, value);
        return self();
    }

    public double getEpochs() {
        return (Double) getOrDefault(epochs);
    }

    public IntParam batchSize() {
        return batchSize;
    }

    public PacelineEstimator setBatchSize(int value) {
        set(batchSize, value);
        return self();
    }

    public int getBatchSize() {
        return (Integer) getOrDefault(batchSize);
    }

    public DoubleParam learningRate() {
        return learningRate;
    }

    public PacelineEstimator setLearningRate(double value) {
        set(learningRate, value);
        return self();
    }

    public double getLearningRate() {
        return (Double) getOrDefault(learningRate);
    }

    public LongParam seed() {
        return seed;
    }

    public PacelineEstimator setSeed(long value) {
        set(seed, value);
        return self();
    }

    public long getSeed() {
        return (Long) getOrDefault(seed);
    }

    public Param<String> checkpointDir() {
        return checkpointDir;
    }

    public PacelineEstimator setCheckpointDir(String value) {
        set(checkpointDir, value);
        return self();
    }

    public String getCheckpointDir() {
        return getOrDefault(checkpointDir);
    }

    public Param<String> shardDir() {
        return shardDir;
    }

    public PacelineEstimator setShardDir(String value) {
        set(shardDir, value);
        return self();
    }

    public String getShardDir() {
        return getOrDefault(shardDir);
    }

    public Param<String> initialModel() {
        return initialModel;
    }

    public PacelineEstimator setInitialModel(String value) {
        set(initialModel, value);
        return self();
    }

    public String getInitialModel() {
        return getOrDefault(initialModel);
    }

    public Param<String> onBadRecord() {
        return onBadRecord;
    }

    public PacelineEstimator setOnBadRecord(String value) {
        set(onBadRecord, value);
        return self();
    }

    public String getOnBadRecord() {
        return getOrDefault(onBadRecord);
    }

    public IntParam patience() {
        return patience;
    }

    public PacelineEstimator setPatience(int value) {
        set(patience, value);
        return self();
    }

    public int getPatience() {
        return (Integer) getOrDefault(patience);
    }
}
