package paceline.spark;

import static paceline.spark.NetParams.ActivationLayer;
import static paceline.spark.NetParams.ConvLayer;
import static paceline.spark.NetParams.LinearLayer;
import static paceline.spark.NetParams.PoolLayer;
import static paceline.spark.NetParams.RDDLayer;
import static paceline.spark.NetParams.SoftmaxWithLoss;
import static paceline.spark.NetParams.kernel;
import static paceline.spark.NetParams.stride;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

/** SparkNet's classes in a JVM without Spark. Its argument is the program sparknet_reference. */
final class NetTest {
    private static final int SIDE = 6;
    private static final int CLASSES = 3;
    private static final int RECORDS = 90;
    private static final int STEPS = 40;
    private static final int BATCH = 8;

    private NetTest() {}

    public static void main(String[] arguments) throws Exception {
        run("test_arrays_have_shapes", NetTest::arraysHaveShapes);
        run("test_averaged_nets_are_those_of_c", () -> averagedNetsAreThoseOfC(arguments[0]));
        run("test_weights_are_set_and_sent", NetTest::weightsAreSetAndSent);
        run("test_weights_that_do_not_fit_are_refused", NetTest::weightsThatDoNotFitAreRefused);
        run("test_errors_name_their_cause", NetTest::errorsNameTheirCause);
        run("test_state_is_a_weight_too", NetTest::stateIsAWeightToo);
        run("test_net_of_the_zoo_and_a_file", NetTest::netOfTheZooAndAFile);
        run("test_data_is_replaced", NetTest::dataIsReplaced);
        run("test_forgotten_nets_are_freed", NetTest::forgottenNetsAreFreed);
    }

    // ---- the net of sparknet_reference

    private static NetParams netParams() {
        return new NetParams(
                RDDLayer("data", BATCH, 1, SIDE, SIDE),
                RDDLayer("label", BATCH, 1),
                ConvLayer("conv1", List.of("data"), kernel(3, 3), 4),
                PoolLayer("pool1", List.of("conv1"), NetParams.Pool.MAX, kernel(2, 2), stride(2, 2)),
                LinearLayer("ip1", List.of("pool1"), 8),
                ActivationLayer("relu1", List.of("ip1"), NetParams.Activation.ReLU),
                LinearLayer("ip2", List.of("relu1"), CLASSES),
                SoftmaxWithLoss("loss", List.of("ip2", "label")))
                .setSolver("base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed'").setSeed(5).setThreads(1).setKernels("ref");
    }

    private static List<Net.Sample> samples(int part) {
        List<Net.Sample> samples = new ArrayList<>();
        for (int number = part * RECORDS; number < (part + 1) * RECORDS; number++) {
            int label = number % CLASSES;
            float[] values = new float[SIDE * SIDE];
            for (int p = 0; p < values.length; p++) {
                values[p] = (float) ((number * 31 + p * 17) % 64) / 64 + (p % CLASSES == label ? 0.5f : 0);
            }
            samples.add(new Net.Sample(new NDArray(values, 1, SIDE, SIDE), label));
        }
        return samples;
    }

    private static FloatBuffer floatsOf(String program) throws Exception {
        Process process = new ProcessBuilder(program).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        byte[] bytes = process.getInputStream().readAllBytes();
        check(process.waitFor() == 0, program + " has failed");
        return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder()).asFloatBuffer();
    }

    private static void averagedNetsAreThoseOfC(String program) throws Exception {
        FloatBuffer expected = floatsOf(program);
        WeightCollection mean = null;
        for (int part = 0; part < 2; part++) {
            try (Net net = new Net(netParams())) {
                net.setTrainingData(samples(part).iterator());
                same(expected.get(), (float) net.train(STEPS), "loss of net " + part);
                mean = mean == null ? net.getWeights() : mean.add(net.getWeights());
            }
        }
        mean.scalarDivide(2);
        try (Net net = new Net(netParams())) {
            net.setWeights(mean);
            net.setValidationData(samples(1).iterator());
            float error = expected.get();
            same(1 - error, net.test(0), "accuracy");
            check(error < 0.3, "the net has learnt nothing: " + error);
            expected.get();
            NDArray scores = net.forward(List.of(samples(0).get(0).data(), samples(0).get(1).data()), "ip2");
            check(Arrays.equals(scores.shape(), new int[] {2, CLASSES}), "the shape of the scores");
            for (int i = 0; i < CLASSES; i++) {
                same(expected.get(), scores.get(0, i), "score " + i);
            }
        }
        check(List.copyOf(mean.layerNames()).equals(List.of("conv1", "ip1", "ip2")), "layers: " + mean.layerNames());
        for (String layer : mean.layerNames()) {
            for (NDArray array : mean.get(layer)) {
                for (float value : array.toFlat()) {
                    same(expected.get(), value, "a weight of " + layer);
                }
            }
        }
        check(!expected.hasRemaining(), "C has more weights");
    }

    // ---- weights

    private static void weightsAreSetAndSent() throws Exception {
        try (Net net = new Net(netParams()); Net other = new Net(netParams().setSeed(6))) {
            WeightCollection weights = net.getWeights();
            check(weights.equals(net.getWeights()) && !weights.equals(other.getWeights()), "weights by seed");
            check(Arrays.equals(weights.get("conv1").get(0).shape(), new int[] {4, 1, 3, 3}), "shape of conv1");
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
                out.writeObject(weights);
            }
            try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
                other.setWeights((WeightCollection) in.readObject());
            }
            check(weights.equals(other.getWeights()), "weights that were sent and set");
            weights.get("ip2").get(1).set(7, 0);
            check(!weights.equals(net.getWeights()), "getWeights is no copy");
        }
        NetParams large = new NetParams(RDDLayer("data", 1, 700), RDDLayer("label", 1, 1),
                LinearLayer("wide", List.of("data"), 1000), SoftmaxWithLoss("loss", List.of("wide", "label")))
                .setKernels("ref").setThreads(1);
        try (Net net = new Net(large); Net other = new Net(large.setSeed(2))) {
            WeightCollection weights = net.getWeights();
            other.setWeights(weights);
            check(weights.equals(other.getWeights()), "an array of several chunks");
        }
    }

    private static void weightsThatDoNotFitAreRefused() {
        try (Net net = new Net(netParams())) {
            WeightCollection before = net.getWeights();
            refused("a layer \"fc\"", () -> net.setWeights(net.getWeights().put("fc", new NDArray(new float[1]))));
            refused("layer \"conv1\" has no weights 0", () -> net.setWeights(new WeightCollection()));
            WeightCollection turned = new WeightCollection();
            for (String layer : before.layerNames()) {
                for (NDArray array : before.get(layer)) {
                    turned.put(layer, new NDArray(new float[array.size()]));
                }
            }
            refused("layer \"conv1\": weights 0 have the shape [36], and the net's [4, 1, 3, 3]",
                    () -> net.setWeights(turned));
            refused("shapes [4, 1, 3, 3] and [36] differ", () -> net.getWeights().add(turned));
            refused("differ", () -> before.add(new WeightCollection()));
            check(before.equals(net.getWeights()), "weights after a refusal");
        }
    }

    private static void stateIsAWeightToo() {
        NetParams params = new NetParams(RDDLayer("data", BATCH, 1, SIDE, SIDE), RDDLayer("label", BATCH, 1),
                NetParams.layer("norm", "BatchNorm", List.of("data"), ""), LinearLayer("ip", List.of("norm"), CLASSES),
                SoftmaxWithLoss("loss", List.of("ip", "label")))
                .setSolver("base_lr: 0.01 lr_policy: 'fixed'").setKernels("ref").setThreads(1);
        try (Net net = new Net(params); Net other = new Net(params)) {
            net.setTrainingData(samples(0).iterator());
            net.train(5);
            other.setWeights(net.getWeights());
            check(net.getWeights().get(WeightCollection.STATE).get(0).size() > 0, "running means");
            check(net.getWeights().equals(other.getWeights()), "state that was set");
        }
    }

    // ---- nets

    private static void netOfTheZooAndAFile() throws Exception {
        Path file = Files.createTempFile("net-test", ".safetensors");
        try (Net net = new Net(NetParams.zoo("lenet").setShape(1, 28, 28).setSeed(3).setThreads(1));
                Net other = new Net(NetParams.zoo("lenet").setShape(1, 28, 28).setThreads(1))) {
            net.saveWeights(file.toString());
            other.loadWeights(file.toString());
            check(net.getWeights().equals(other.getWeights()), "weights of a file");
        } finally {
            Files.delete(file);
        }
    }

    private static void dataIsReplaced() {
        try (Net net = new Net(netParams())) {
            for (int i = 0; i < 5; i++) {
                net.setTrainingData(samples(i % 2).iterator());
                net.train(2);
            }
            List<Net.Sample> wrong = samples(0).subList(0, 10);
            wrong.set(5, new Net.Sample(wrong.get(5).data(), CLASSES));
            refused("label 3 of 3 classes", () -> net.setTrainingData(wrong.iterator()));
            net.train(2);
        }
    }

    private static void errorsNameTheirCause() {
        refused("two RDDLayers", () -> new NetParams(RDDLayer("data", 1, 1, 1, 1)));
        refused("lenex", () -> open(NetParams.zoo("lenex")));
        refused("shape of its records is unknown", () -> open(NetParams.zoo("lenet")));
        refused("0 rows", () -> open(NetParams.zoo("lenet").setShape(1, 0, 28)));
        refused("missing.prototxt", () -> open(NetParams.file("missing.prototxt")));
        refused("base_rl", () -> open(netParams().setSolver("base_rl: 1")));
        refused("kernels", () -> open(netParams().setKernels("fast")));
        refused("option batch", () -> open(netParams().setBatch(-1)));
        refused("ip9", () -> open(new NetParams(RDDLayer("data", 1, 4), RDDLayer("label", 1, 1),
                SoftmaxWithLoss("loss", List.of("ip9", "label")))));
        try (Net net = new Net(netParams())) {
            refused("training data", () -> net.train(1));
            refused("validation data", () -> net.test(1));
            refused("-1 steps", () -> net.train(-1));
            refused("\"ip9\"", () -> net.forward(List.of(), "ip9"));
            Iterator<Net.Sample> small = List.of(new Net.Sample(new NDArray(new float[5]), 0)).iterator();
            refused("5 values, and the net takes 36", () -> net.setTrainingData(small));
            refused("record", () -> net.setTrainingData(List.<Net.Sample>of().iterator()));
        }
        Net closed = new Net(netParams());
        closed.close();
        closed.close();
        refused("net: it is closed", () -> closed.train(1));
        refused("net: it is closed", closed::getWeights);
    }

    private static void open(NetParams params) {
        new Net(params).close();
    }

    /** More of them than the library has room for. */
    private static void forgottenNetsAreFreed() throws Exception {
        NetParams tiny = new NetParams(RDDLayer("data", 1, 2), RDDLayer("label", 1, 1),
                LinearLayer("ip", List.of("data"), 2), SoftmaxWithLoss("loss", List.of("ip", "label")))
                .setKernels("ref").setThreads(1);
        for (int i = 0; i < 2500; i++) {
            new Net(tiny);
            if (i % 250 == 0) {
                System.gc();
                Thread.sleep(50);
            }
        }
    }

    // ---- arrays

    private static void arraysHaveShapes() {
        NDArray array = new NDArray(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
        check(array.get(1, 0) == 4 && array.slice(1).equals(new NDArray(new float[] {4, 5, 6})), "rows");
        array.set(9, 0, 2);
        check(array.toFlat()[2] == 9, "a value that was set");
        check(array.add(new NDArray(new float[] {1, 0, 0, 0, 0, 0}, 2, 3)).scalarDivide(2).get(0, 0) == 1, "a mean");
        refused("6 floats, and the shape [4] has 4", () -> new NDArray(new float[6], 4));
        refused("no [2, 0] in the shape [2, 3]", () -> array.get(2, 0));
        refused("no [1] in the shape [2, 3]", () -> array.get(1));
        refused("no [2] in the shape [2, 3]", () -> array.slice(2));
    }

    // ---- tools

    private static void same(float expected, float value, String what) {
        check(expected == value, what + " is " + value + ", and C's " + expected);
    }

    private static void refused(String word, Runnable body) {
        try {
            body.run();
        } catch (PacelineException thrown) {
            check(thrown.getMessage().contains(word), "'" + word + "' in: " + thrown.getMessage());
            return;
        }
        throw new AssertionError("no error about " + word);
    }
}
