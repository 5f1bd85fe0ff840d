import static paceline.spark.NetParams.ActivationLayer;
import static paceline.spark.NetParams.ConvLayer;
import static paceline.spark.NetParams.LinearLayer;
import static paceline.spark.NetParams.PoolLayer;
import static paceline.spark.NetParams.RDDLayer;
import static paceline.spark.NetParams.SoftmaxWithLoss;
import static paceline.spark.NetParams.kernel;
import static paceline.spark.NetParams.stride;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import paceline.spark.NDArray;
import paceline.spark.Net;
import paceline.spark.NetParams;
import paceline.spark.NetParams.Activation;
import paceline.spark.NetParams.Pool;
import paceline.spark.WeightCollection;

/**
 * SparkNet's Listing 3 with the net of Listing 2 (Moritz et al., "SparkNet: Training Deep Networks in Spark", 2016): a
 * net in each partition of the data, and weights that travel through Spark's driver in each round. PacelineEstimator
 * with the strategy `sync` does the same without Spark's messages.
 *
 *     Listing3 [ROUNDS [PARTITIONS]]
 *
 * The pictures are those of the Debian package dataset-fashion-mnist, which each machine has.
 */
public final class Listing3 {
    private static final int BATCH = 64;
    private static final int TAU = 50;

    private Listing3() {}

    /** Listing 2. */
    static NetParams netParams() {
        return new NetParams(
                RDDLayer("data", BATCH, 1, 28, 28),
                RDDLayer("label", BATCH, 1),
                ConvLayer("conv1", List.of("data"), kernel(5, 5), 20),
                PoolLayer("pool1", List.of("conv1"), Pool.MAX, kernel(2, 2), stride(2, 2)),
                ConvLayer("conv2", List.of("pool1"), kernel(5, 5), 50),
                PoolLayer("pool2", List.of("conv2"), Pool.MAX, kernel(2, 2), stride(2, 2)),
                LinearLayer("ip1", List.of("pool2"), 500),
                ActivationLayer("relu1", List.of("ip1"), Activation.ReLU),
                LinearLayer("ip2", List.of("relu1"), 10),
                SoftmaxWithLoss("loss", List.of("ip2", "label")))
                .setSolver("base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'").setThreads(1);
    }

    public static void main(String[] args) throws IOException {
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 20;
        int partitions = args.length > 1 ? Integer.parseInt(args[1]) : 3;
        // A net stays where it is, so its partition must not move to an executor that is free earlier.
        try (SparkSession spark = SparkSession.builder().appName("listing3").config("spark.locality.wait", "1h")
                .getOrCreate(); Net tested = new Net(netParams())) {
            JavaSparkContext context = JavaSparkContext.fromSparkContext(spark.sparkContext());
            tested.setValidationData(pictures(0, 1, "t10k", FashionLenet.TEST).stream().map(Listing3::preprocess)
                    .iterator());
            train(context, netParams(), partitions, rounds, tested);
        }
    }

    private static void train(JavaSparkContext context, NetParams netParams, int partitions, int rounds, Net tested) {
        JavaRDD<Row> loaded = loadData(context, partitions);
        JavaRDD<Net.Sample> trainData = loaded.map(Listing3::preprocess).cache();
        JavaRDD<Net> nets = trainData.mapPartitions(data -> {
            Net net = new Net(netParams);
            net.setTrainingData(data);
            return List.of(net).iterator();
        }).cache();
        WeightCollection weights = initialWeights(tested);
        for (int i = 1; i <= rounds; i++) {
            Broadcast<WeightCollection> broadcastWeights = context.broadcast(weights);
            nets.foreach(net -> net.setWeights(broadcastWeights.value()));
            weights = nets.map(net -> {
                net.train(TAU);
                return net.getWeights();
            }).reduce(WeightCollection::add).scalarDivide(partitions); // an average of WeightCollection objects
            broadcastWeights.destroy();
            tested.setWeights(weights);
            System.out.println(String.format(Locale.ROOT, "round %3d  test error %5.2f %%", i,
                    100 * (1 - tested.test(0))));
        }
    }

    /** Those of any net: all have one seed. */
    private static WeightCollection initialWeights(Net net) {
        return net.getWeights();
    }

    /** Each task reads its part of the files. */
    private static JavaRDD<Row> loadData(JavaSparkContext context, int partitions) {
        List<Integer> parts = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            parts.add(i);
        }
        return context.parallelize(parts, partitions)
                .flatMap(part -> pictures(part, partitions, "train", FashionLenet.TRAIN).iterator());
    }

    private static List<Row> pictures(int part, int parts, String set, int count) throws IOException {
        return FashionLenet.part(part, parts, set, count, false);
    }

    private static Net.Sample preprocess(Row row) {
        byte[] image = row.getAs(0);
        float[] pixels = new float[image.length];
        for (int i = 0; i < pixels.length; i++) {
            pixels[i] = (image[i] & 0xff) * 0.00390625f;
        }
        return new Net.Sample(new NDArray(pixels, 1, 28, 28), row.getInt(1));
    }
}
