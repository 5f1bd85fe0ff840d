package paceline.spark;

import java.io.Serializable;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

/**
 * SparkNet's Net, Listing 1 of the paper (Moritz et al., "SparkNet: Training Deep Networks in Spark", 2016), on the
 * library's own nets. It is native memory of one process: Spark can cache it where it is, and cannot send it. Its
 * weights can be sent.
 */
public final class Net implements AutoCloseable {
    /** A record, and its class. */
    public static final class Sample implements Serializable {
        private static final long serialVersionUID = 1;
        private final NDArray data;
        private final int label;

        public Sample(NDArray data, int label) {
            this.data = data;
            this.label = label;
        }

        public NDArray data() {
            return data;
        }

        public int label() {
            return label;
        }
    }

    private static final Cleaner CLEANER = Cleaner.create();
    private static final int CHUNK_FLOATS = 1 << 18;
    private static final ThreadLocal<ByteBuffer> CHUNK = ThreadLocal.withInitial(() -> direct(CHUNK_FLOATS));

    /** The native objects. They outlive a Net that nobody has closed until it is collected. */
    private static final class Handles implements Runnable {
        long engine;
        long net;

        @Override
        public synchronized void run() {
            if (net > 0) {
                Native.close(net);
            }
            if (engine > 0) {
                Native.close(engine);
            }
            net = 0;
            engine = 0;
        }
    }

    private final Handles handles = new Handles();
    private final int[] shape; // channels, height, width of records; classes
    private String trainingSet;
    private String validationSet;
    private int sets;

    /** A net with its initial weights, which are the same ones for each net of these parameters. */
    public Net(NetParams params) {
        NativeLibrary.load();
        shape = Arrays.copyOf(params.shape(), 4);
        CLEANER.register(this, handles);
        handles.engine = Native.engineCreate(Native.LOG_WARN);
        opened(handles.engine);
        handles.net = Native.netOpen(handles.engine, params.net(), params.options(), shape);
        if (handles.net < 0) {
            PacelineException failed = new PacelineException(Native.message());
            handles.run();
            throw failed;
        }
    }

    /** Train on these records from now on. They are copied; the iterator is read to its end. */
    public synchronized void setTrainingData(Iterator<Sample> data) {
        trainingSet = replace(trainingSet, data, true);
    }

    public synchronized void setValidationData(Iterator<Sample> data) {
        validationSet = replace(validationSet, data, false);
    }

    /** Take steps, and return their mean loss. */
    public synchronized double train(int numSteps) {
        double[] loss = {0};
        done(Native.netTrain(handles.net, numSteps, loss));
        return loss[0];
    }

    /** The accuracy, 0 to 1, on the first batches of the validation data, or with 0 on all of it. */
    public synchronized float test(int numSteps) {
        double[] result = {0, 0};
        done(Native.netTest(handles.net, numSteps, result));
        return (float) (1 - result[0]);
    }

    /** The values of a blob for each record, in the test phase. */
    public synchronized NDArray forward(List<NDArray> records, String blob) {
        int each = Native.netForward(handles.net, CHUNK.get(), 0, blob, CHUNK.get());
        done(Math.min(each, 0));
        ByteBuffer in = direct(records.size() * valuesOfRecord());
        ByteBuffer out = direct(records.size() * each);
        FloatBuffer floats = in.asFloatBuffer();
        for (NDArray record : records) {
            floats.put(valuesOf(record));
        }
        done(Math.min(0, Native.netForward(handles.net, in, records.size(), blob, out)));
        float[] values = new float[records.size() * each];
        out.asFloatBuffer().get(values);
        return new NDArray(values, records.size(), each);
    }

    /** Each layer of the net needs its weights; after an error the net has its former ones. */
    public synchronized void setWeights(WeightCollection weights) {
        Tensor[] tensors = tensors();
        for (String layer : weights.layerNames()) {
            if (Arrays.stream(tensors).noneMatch(tensor -> tensor.layer.equals(layer))) {
                throw new PacelineException("the net has no weights of a layer \"" + layer + "\"");
            }
        }
        for (Tensor tensor : tensors) {
            tensor.check(weights);
        }
        for (Tensor tensor : tensors) {
            copy(tensor, weights.get(tensor.layer).get(tensor.index).toFlat(), true);
        }
    }

    /** A copy. */
    public synchronized WeightCollection getWeights() {
        WeightCollection weights = new WeightCollection();
        for (Tensor tensor : tensors()) {
            float[] values = new float[Arrays.stream(tensor.shape).reduce(1, Math::multiplyExact)];
            copy(tensor, values, false);
            weights.put(tensor.layer, new NDArray(values, tensor.shape));
        }
        return weights;
    }

    /** From a file, safetensors or caffemodel, by the names of layers. */
    public synchronized void loadWeights(String path) {
        done(Native.netFile(handles.net, path, false));
    }

    public synchronized void saveWeights(String path) {
        done(Native.netFile(handles.net, path, true));
    }

    /** Free the native memory. Later calls fail. */
    @Override
    public synchronized void close() {
        handles.run();
    }

    // ---- records

    private int valuesOfRecord() {
        return shape[0] * shape[1] * shape[2];
    }

    private float[] valuesOf(NDArray record) {
        if (record.size() != valuesOfRecord()) {
            throw new PacelineException("a record has " + record.size() + " values, and the net takes "
                    + valuesOfRecord());
        }
        return record.toFlat();
    }

    /** The name of the new records; on an error the net keeps the former ones. */
    private String replace(String former, Iterator<Sample> data, boolean training) {
        String name = "records-" + ++sets;
        long stream = Native.streamOpen(handles.engine, name, shape[0], shape[1], shape[2], shape[3], Native.F32, 0,
                null, Native.COMPLETE, 0);
        opened(stream);
        boolean sealed = false;
        try {
            fill(stream, data);
            done(Native.streamSeal(stream));
            sealed = true;
        } finally {
            if (!sealed) {
                Native.close(stream);
            }
        }
        if (Native.netData(handles.net, "memory:" + name, training) != 0) {
            PacelineException failed = new PacelineException(Native.message());
            Native.unbind(handles.engine, name);
            throw failed;
        }
        if (former != null) {
            done(Native.unbind(handles.engine, former));
        }
        return name;
    }

    private void fill(long stream, Iterator<Sample> data) {
        ByteBuffer[] next = new ByteBuffer[2];
        while (data.hasNext()) {
            done(Native.streamNext(stream, next));
            FloatBuffer floats = next[0].order(ByteOrder.nativeOrder()).asFloatBuffer();
            IntBuffer numbers = next[1].order(ByteOrder.nativeOrder()).asIntBuffer();
            while (numbers.hasRemaining() && data.hasNext()) {
                Sample sample = data.next();
                floats.put(valuesOf(sample.data()));
                numbers.put(sample.label());
            }
            done(Native.streamCommit(stream, numbers.position()));
        }
    }

    // ---- weights

    /** Where an array of a WeightCollection is in the net. */
    private static final class Tensor {
        final int number;
        final String layer;
        final int index; // within the layer
        final int[] shape;

        Tensor(long net, int number) {
            int[] numbers = new int[Native.TENSOR_INTS];
            byte[] name = Native.netTensor(net, number, numbers);
            if (name == null) {
                throw new PacelineException(Native.message());
            }
            this.number = number;
            layer = new String(name, StandardCharsets.UTF_8);
            index = numbers[0];
            shape = Arrays.copyOfRange(numbers, 2, 2 + numbers[1]);
        }

        void check(WeightCollection weights) {
            List<NDArray> arrays = weights.get(layer);
            if (index >= arrays.size()) {
                throw new PacelineException("layer \"" + layer + "\" has no weights " + index);
            }
            if (!Arrays.equals(arrays.get(index).shape(), shape)) {
                throw new PacelineException("layer \"" + layer + "\": weights " + index + " have the shape "
                        + Arrays.toString(arrays.get(index).shape()) + ", and the net's " + Arrays.toString(shape));
            }
        }
    }

    private Tensor[] tensors() {
        int count = Native.netTensors(handles.net);
        done(Math.min(count, 0));
        Tensor[] tensors = new Tensor[count];
        for (int i = 0; i < count; i++) {
            tensors[i] = new Tensor(handles.net, i);
        }
        return tensors;
    }

    private void copy(Tensor tensor, float[] values, boolean write) {
        ByteBuffer chunk = CHUNK.get();
        for (int from = 0; from < values.length; from += CHUNK_FLOATS) {
            int count = Math.min(CHUNK_FLOATS, values.length - from);
            if (write) {
                chunk.asFloatBuffer().put(values, from, count);
            }
            done(Native.netCopy(handles.net, tensor.number, from, chunk, count, write));
            if (!write) {
                chunk.asFloatBuffer().get(values, from, count);
            }
        }
    }

    // ---- calls

    private static ByteBuffer direct(int floats) {
        return ByteBuffer.allocateDirect(Math.multiplyExact(floats, Float.BYTES)).order(ByteOrder.nativeOrder());
    }

    private static void done(int status) {
        if (status != 0) {
            throw new PacelineException(Native.message());
        }
    }

    private static void opened(long handle) {
        if (handle < 0) {
            throw new PacelineException(Native.message());
        }
    }
}
