package paceline.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/**
 * SparkNet's NetParams, the specification of a net, and its layers by the names of Listing 2 (Moritz et al., "SparkNet:
 * Training Deep Networks in Spark", 2016). A net is built of layers, or is one of the zoo or of a file of Caffe's.
 */
public final class NetParams implements Serializable {
    private static final long serialVersionUID = 1;

    /** A layer as a prototxt has it, or a place where records or labels enter. */
    public static final class Layer implements Serializable {
        private static final long serialVersionUID = 1;
        private final String name;
        private final String text; // null: it is an RDDLayer
        private final int[] shape;

        private Layer(String name, String text, int... shape) {
            this.name = name;
            this.text = text;
            this.shape = shape;
        }
    }

    /** How a PoolLayer makes one number of those in its window. */
    public enum Pool { MAX, AVE }

    /** The function of an ActivationLayer, by Caffe's name. */
    public enum Activation { ReLU, Sigmoid, TanH }

    private static final String WEIGHTS = " weight_filler { type: 'xavier' } }"
            + " param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }";

    private final String net; // the field of a job
    private final List<String> options = new ArrayList<>();
    private final int[] shape = new int[3];

    private NetParams(String net) {
        this.net = "net={" + net + "}";
    }

    /** Two RDDLayers, the first of them for records, and others. */
    public NetParams(Layer... layers) {
        this(define(layers));
        setBatch(rddLayers(layers).get(0).shape[0]);
    }

    /** A net of the zoo, by its name. */
    public static NetParams zoo(String name) {
        return new NetParams("zoo: " + quoted(name));
    }

    /** A net of a prototxt or caffemodel. */
    public static NetParams file(String path) {
        return new NetParams("file: " + quoted(path));
    }

    /** Records of a step; 64. */
    public NetParams setBatch(int batch) {
        return set("batch", batch);
    }

    /** The text of a solver.prototxt. */
    public NetParams setSolver(String text) {
        return set("solver", text);
    }

    /** Of the initial weights and of the order of records; 1. */
    public NetParams setSeed(int seed) {
        return set("seed", seed);
    }

    /** Of records, for a net that does not state it, as most of the zoo. */
    public NetParams setShape(int channels, int height, int width) {
        shape[0] = channels;
        shape[1] = height;
        shape[2] = width;
        return this;
    }

    /** Threads that compute; as many as the machine has cores. */
    public NetParams setThreads(int threads) {
        return set("threads", threads);
    }

    /** ref, dnnl or auto; auto. */
    public NetParams setKernels(String kernels) {
        return set("kernels", kernels);
    }

    private NetParams set(String option, Object value) {
        options.add(option + "=" + value);
        return this;
    }

    String net() {
        return net;
    }

    /** Channels, height and width of records; 0, 0, 0: the net states them. */
    int[] shape() {
        return shape;
    }

    /** Of several values of an option the last one counts. */
    String[] options() {
        return options.toArray(new String[0]);
    }

    // ---- layers

    /** Where records (batch, channels, height, width), or labels (batch, 1), enter the net. */
    public static Layer RDDLayer(String name, int... shape) {
        if (shape.length < 2 || shape.length > 4) {
            throw new PacelineException("RDDLayer " + name
                    + ": the shape begins with the batch, and has 2 to 4 numbers");
        }
        return new Layer(name, null, shape);
    }

    public static Layer ConvLayer(String name, List<String> bottoms, int[] kernel, int numFilters) {
        return layer(name, "Convolution", bottoms, "convolution_param { num_output: " + numFilters
                + pair(" kernel", kernel) + WEIGHTS);
    }

    public static Layer PoolLayer(String name, List<String> bottoms, Pool pool, int[] kernel, int[] stride) {
        return layer(name, "Pooling", bottoms, "pooling_param { pool: " + pool + pair(" kernel", kernel)
                + pair(" stride", stride) + " }");
    }

    public static Layer LinearLayer(String name, List<String> bottoms, int numOutputs) {
        return layer(name, "InnerProduct", bottoms, "inner_product_param { num_output: " + numOutputs + WEIGHTS);
    }

    public static Layer ActivationLayer(String name, List<String> bottoms, Activation activation) {
        return layer(name, activation.name(), bottoms, "");
    }

    public static Layer SoftmaxWithLoss(String name, List<String> bottoms) {
        return layer(name, "SoftmaxWithLoss", bottoms, "");
    }

    /** Any layer of Caffe's: its type, and the text of its parameters. */
    public static Layer layer(String name, String type, List<String> bottoms, String text) {
        StringBuilder layer = new StringBuilder("name: " + quoted(name) + " type: " + quoted(type));
        bottoms.forEach(bottom -> layer.append(" bottom: ").append(quoted(bottom)));
        return new Layer(name, layer.append(" top: ").append(quoted(name)).append(' ').append(text).toString());
    }

    public static int[] kernel(int height, int width) {
        return new int[] {height, width};
    }

    public static int[] stride(int height, int width) {
        return new int[] {height, width};
    }

    private static String pair(String field, int[] of) {
        return field + "_h: " + of[0] + field + "_w: " + of[1];
    }

    private static String quoted(String text) {
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'";
    }

    private static List<Layer> rddLayers(Layer... layers) {
        List<Layer> found = new ArrayList<>();
        for (Layer layer : layers) {
            if (layer.text == null) {
                found.add(layer);
            }
        }
        if (found.size() != 2) {
            throw new PacelineException("a net has two RDDLayers, of records and of labels, and this one has "
                    + found.size());
        }
        return found;
    }

    /** Both RDDLayers are one layer of Caffe's, whose first dimension, 1, stands for the batch. */
    private static String define(Layer... layers) {
        Layer data = rddLayers(layers).get(0);
        Layer label = rddLayers(layers).get(1);
        StringBuilder text = new StringBuilder("define { layer { name: " + quoted(data.name) + " type: 'Input' top: "
                + quoted(data.name) + " top: " + quoted(label.name) + " input_param { shape { dim: 1");
        for (int i = 1; i < 4; i++) {
            text.append(" dim: ").append(i < data.shape.length ? data.shape[i] : 1);
        }
        text.append(" } shape { dim: 1 } } }");
        for (Layer layer : layers) {
            if (layer.text != null) {
                text.append(" layer { ").append(layer.text).append(" }");
            }
        }
        return text.append(" }").toString();
    }
}
