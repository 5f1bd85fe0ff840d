package paceline.spark;

import static paceline.spark.NetParams.LinearLayer;
import static paceline.spark.NetParams.RDDLayer;
import static paceline.spark.NetParams.SoftmaxWithLoss;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;

/** SparkNet's Listing 3 in executors gives the weights that the same nets have in one process. SparkTest runs it. */
final class SparkNetTest {
    private static final int PARTS = 3;
    private static final int ROUNDS = 3;
    private static final int TAU = 5;
    private static final int VALUES = 12;
    private static final int CLASSES = 3;

    private SparkNetTest() {}

    static void netsAverageThroughSpark(SparkSession spark) {
        NetParams params = new NetParams(RDDLayer("data", 8, VALUES), RDDLayer("label", 8, 1),
                LinearLayer("ip", List.of("data"), CLASSES), SoftmaxWithLoss("loss", List.of("ip", "label")))
                .setSolver("base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed'").setKernels("ref").setThreads(1);
        WeightCollection expected = trainHere(params);
        WeightCollection weights = trainInExecutors(JavaSparkContext.fromSparkContext(spark.sparkContext()), params);
        for (int i = 0; i < 2; i++) {
            float[] here = expected.get("ip").get(i).toFlat();
            float[] there = weights.get("ip").get(i).toFlat();
            for (int k = 0; k < here.length; k++) {
                if (Math.abs(here[k] - there[k]) > 1e-5) { // executors answer in any order, so sums round differently
                    throw new AssertionError("weight " + k + " is " + there[k] + ", and here " + here[k]);
                }
            }
        }
    }

    private static List<Net.Sample> samples(int part) {
        List<Net.Sample> samples = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            float[] values = new float[VALUES];
            for (int k = 0; k < VALUES; k++) {
                values[k] = ((part * 60 + i) * 31 + k * 17) % 64 / 64f + (k % CLASSES == i % CLASSES ? 1 : 0);
            }
            samples.add(new Net.Sample(new NDArray(values), i % CLASSES));
        }
        return samples;
    }

    private static Net net(NetParams params, int part) {
        Net net = new Net(params);
        net.setTrainingData(samples(part).iterator());
        return net;
    }

    private static WeightCollection trainHere(NetParams params) {
        List<Net> nets = List.of(net(params, 0), net(params, 1), net(params, 2));
        WeightCollection weights = nets.get(0).getWeights();
        for (int i = 0; i < ROUNDS; i++) {
            WeightCollection sum = null;
            for (Net net : nets) {
                net.setWeights(weights);
                net.train(TAU);
                sum = sum == null ? net.getWeights() : sum.add(net.getWeights());
            }
            weights = sum.scalarDivide(PARTS);
        }
        nets.forEach(Net::close);
        return weights;
    }

    private static WeightCollection trainInExecutors(JavaSparkContext context, NetParams params) {
        JavaRDD<Net> nets = context.parallelize(List.of(0, 1, 2), PARTS).map(part -> net(params, part)).cache();
        WeightCollection weights = nets.map(Net::getWeights).first();
        for (int i = 0; i < ROUNDS; i++) {
            Broadcast<WeightCollection> broadcastWeights = context.broadcast(weights);
            nets.foreach(net -> net.setWeights(broadcastWeights.value()));
            weights = nets.map(net -> {
                net.train(TAU);
                return net.getWeights();
            }).reduce(WeightCollection::add).scalarDivide(PARTS);
        }
        nets.foreach(Net::close);
        nets.unpersist();
        return weights;
    }
}
