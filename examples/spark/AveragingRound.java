import static paceline.spark.NetParams.LinearLayer;
import static paceline.spark.NetParams.RDDLayer;
import static paceline.spark.NetParams.SoftmaxWithLoss;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import paceline.spark.NDArray;
import paceline.spark.Net;
import paceline.spark.NetParams;
import paceline.spark.PacelineEstimator;
import paceline.spark.WeightCollection;

/**
 * What a round of averaging 100 MB of weights takes between executors: by the exchange of PacelineEstimator with the
 * strategy `sync`, and by SparkNet's Listing 3 (Moritz et al., 2016) through Spark's driver, in turns. A round has one
 * step of one record in both. bench/spark_round.sh submits it.
 *
 *     AveragingRound [ROUNDS [TURNS [EXECUTORS]]]
 */
public final class AveragingRound {
    private static final int WIDE = 5000; // with as many hidden values: 25,015,002 weights
    private static final int RECORDS = 300;
    private static final String SOLVER = "base_lr: 0.0001 momentum: 0.9 lr_policy: 'fixed'";
    private static final Pattern EXCHANGE =
            Pattern.compile("\"t\":([0-9.e+-]+).*\"kind\":\"exchange\".*\"seconds\":([0-9.e+-]+)");

    private final SparkSession spark;
    private final JavaSparkContext context;
    private final int rounds;
    private final int executors;

    private AveragingRound(SparkSession spark, int rounds, int executors) {
        this.spark = spark;
        this.context = JavaSparkContext.fromSparkContext(spark.sparkContext());
        this.rounds = rounds;
        this.executors = executors;
    }

    public static void main(String[] args) throws IOException {
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 10;
        int turns = args.length > 1 ? Integer.parseInt(args[1]) : 3;
        int executors = args.length > 2 ? Integer.parseInt(args[2]) : 3;
        try (SparkSession spark = SparkSession.builder().appName("averaging-round").config("spark.locality.wait", "1h")
                .getOrCreate()) {
            AveragingRound bench = new AveragingRound(spark, rounds, executors);
            List<Double> ours = new ArrayList<>();
            List<Double> listings = new ArrayList<>();
            for (int i = 1; i <= turns; i++) {
                ours.addAll(bench.estimator());
                listings.addAll(bench.listing3());
            }
            say("a round, median of %d: Paceline %.3f s, Listing 3 %.3f s, %.1f times as long", ours.size(),
                    median(ours), median(listings), median(listings) / median(ours));
        }
    }

    private static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().skip(values.size() / 2).findFirst().orElse(Double.NaN);
    }

    private static float[] record(int number) {
        float[] values = new float[WIDE];
        for (int i = 0; i < WIDE; i++) {
            values[i] = (number * 31 + i * 17) % 64 / 64f;
        }
        return values;
    }

    private JavaRDD<Integer> numbers() {
        List<Integer> numbers = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            numbers.add(i);
        }
        return context.parallelize(numbers, executors);
    }

    /** Seconds of each round but the first. */
    private List<Double> estimator() throws IOException {
        Path directory = Files.createTempDirectory("averaging-round-");
        Dataset<Row> rows = spark.createDataFrame(
                numbers().map(number -> RowFactory.create(record(number), number % 2)),
                new StructType().add("features", DataTypes.createArrayType(DataTypes.FloatType, false))
                        .add("label", DataTypes.IntegerType));
        long before = residentMegabytes();
        new PacelineEstimator()
                .setJob("batch: 1 threads: 1 strategy { sync { tau: 1 } } stop { steps: " + (rounds + 1)
                        + " } solver { " + SOLVER + " }")
                .setNet(netText()).setShape(WIDE + ",1,1").setClasses(2).setMinWorkers(executors)
                .setMaxWorkers(executors).setCheckpointDir(directory.toString()).fit(rows);
        List<Double> times = new ArrayList<>();
        List<Double> exchanges = new ArrayList<>();
        for (String line : Files.readAllLines(directory.resolve("run").resolve("events.jsonl"))) {
            Matcher matcher = EXCHANGE.matcher(line);
            if (matcher.find()) {
                times.add(Double.parseDouble(matcher.group(1)));
                exchanges.add(Double.parseDouble(matcher.group(2)));
            }
        }
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
        List<Double> seconds = new ArrayList<>();
        for (int i = 1; i < times.size(); i++) {
            seconds.add(times.get(i) - times.get(i - 1));
        }
        say("Paceline:  %d rounds, median %.3f s, of which the exchange %.3f s; driver %d MB, then %d MB",
                seconds.size(), median(seconds), median(exchanges), before, residentMegabytes());
        return seconds;
    }

    private List<Double> listing3() {
        NetParams params = new NetParams(RDDLayer("data", 1, WIDE), RDDLayer("label", 1, 1),
                LinearLayer("ip1", List.of("data"), WIDE), LinearLayer("ip2", List.of("ip1"), 2),
                SoftmaxWithLoss("loss", List.of("ip2", "label"))).setSolver(SOLVER).setThreads(1);
        long before = residentMegabytes();
        JavaRDD<Net> nets = numbers().mapPartitions(data -> {
            Net net = new Net(params);
            List<Net.Sample> samples = new ArrayList<>();
            data.forEachRemaining(number -> samples.add(new Net.Sample(new NDArray(record(number)), number % 2)));
            net.setTrainingData(samples.iterator());
            return List.of(net).iterator();
        }).cache();
        WeightCollection weights = nets.map(Net::getWeights).first();
        nets.count();
        List<Double> seconds = new ArrayList<>();
        for (int i = 0; i <= rounds; i++) {
            long from = System.nanoTime();
            Broadcast<WeightCollection> broadcastWeights = context.broadcast(weights);
            nets.foreach(net -> net.setWeights(broadcastWeights.value()));
            weights = nets.map(net -> {
                net.train(1);
                return net.getWeights();
            }).reduce(WeightCollection::add).scalarDivide(executors);
            broadcastWeights.destroy();
            if (i > 0) {
                seconds.add((System.nanoTime() - from) / 1e9);
            }
        }
        nets.foreach(Net::close);
        nets.unpersist();
        say("Listing 3: %d rounds, median %.3f s; driver %d MB, then %d MB", seconds.size(), median(seconds), before,
                residentMegabytes());
        return seconds;
    }

    private static String netText() {
        return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }"
                + inner("ip1", "data", WIDE) + inner("ip2", "ip1", 2)
                + " layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }";
    }

    private static String inner(String name, String bottom, int outputs) {
        return " layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" + name
                + "' inner_product_param { num_output: " + outputs + " weight_filler { type: 'xavier' } } }";
    }

    private static long residentMegabytes() {
        try {
            return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4 / 1024;
        } catch (IOException gone) {
            return 0;
        }
    }
}
