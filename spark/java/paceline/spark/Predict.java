package paceline.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/** The task that adds predictions to the rows of a partition. */
final class Predict implements MapPartitionsFunction<Row, Row> {
    private static final long serialVersionUID = 1;
    private static final int BATCH = 64;

    private final Broadcast<byte[]> weights;
    private final String job;
    private final RecordSchema schema;
    private final int column;
    private final boolean scores;

    Predict(Broadcast<byte[]> weights, String job, RecordSchema schema, int column,
            boolean scores) {
        this.weights = weights;
        this.job = job;
        this.schema = schema;
        this.column = column;
        this.scores = scores;
    }

    @Override
    public Iterator<Row> call(Iterator<Row> rows) throws IOException {
        Net net = new Net();
        TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> net.close());
        net.open();
        return new Rows(rows, net);
    }

    /** The model in the library. */
    private final class Net {
        private final RowPacker packer = new RowPacker(schema);
        private final ByteBuffer records =
                ByteBuffer.allocateDirect(BATCH * schema.bytes()).order(ByteOrder.nativeOrder());
        private LocalEngine engine;
        private long model;
        private int count; // scores of a record
        private boolean values; // they are no scores of classes
        private ByteBuffer out;

        void open() throws IOException {
            engine = new LocalEngine();
            Path directory = Files.createTempDirectory("paceline-model-");
            Path jobFile = directory.resolve("job.prototxt");
            Path weightsFile = directory.resolve("model.safetensors");
            try {
                Files.writeString(jobFile, job);
                Files.write(weightsFile, weights.value());
                int[] shape = {schema.channels, schema.height, schema.width, 0, 0};
                model = Native.modelOpen(engine.handle(), jobFile.toString(), weightsFile.toString(),
                        schema.type(), TaskContext.get().cpus(), BATCH, shape);
                if (model < 0) {
                    throw new PacelineException("the model cannot be opened: " + Native.message());
                }
                count = shape[3];
                values = (shape[4] & Native.VALUES) != 0;
                out = ByteBuffer.allocateDirect(BATCH * count * Float.BYTES)
                        .order(ByteOrder.nativeOrder());
            } finally {
                Files.deleteIfExists(jobFile);
                Files.deleteIfExists(weightsFile);
                Files.delete(directory);
            }
        }

        void close() {
            if (model > 0) {
                Native.close(model);
            }
            if (engine != null) {
                engine.close();
            }
        }

        /** Append the rows with their predictions to `done`; a row without features has none. */
        void predict(List<Row> batch, List<Row> done) {
            records.clear();
            int packed = 0;
            for (Row row : batch) {
                if (row.isNullAt(column)) {
                    continue;
                }
                String wrong = packer.putValues(row, column, records);
                if (wrong != null) {
                    throw new PacelineException("a row cannot be predicted: " + wrong);
                }
                packed++;
            }
            if (packed > 0 && Native.modelPredict(model, records, packed, out) != 0) {
                throw new PacelineException("prediction: " + Native.message());
            }
            int at = 0;
            for (Row row : batch) {
                done.add(row.isNullAt(column) ? extend(row, null) : extend(row, scoresAt(at++)));
            }
        }

        private double[] scoresAt(int record) {
            double[] score = new double[count];
            for (int k = 0; k < count; k++) {
                score[k] = out.getFloat((record * count + k) * Float.BYTES);
            }
            return score;
        }

        private Row extend(Row row, double[] score) {
            int more = scores ? 2 : 1;
            Object[] all = new Object[row.size() + more];
            for (int i = 0; i < row.size(); i++) {
                all[i] = row.get(i);
            }
            if (score != null) {
                if (scores) {
                    all[row.size()] = Vectors.dense(score);
                }
                all[all.length - 1] = values ? score[0] : highest(score);
            }
            return RowFactory.create(all);
        }
    }

    private static double highest(double[] score) {
        int best = 0;
        for (int k = 1; k < score.length; k++) {
            best = score[k] > score[best] ? k : best;
        }
        return best;
    }

    /** The rows, a batch at a time. */
    private static final class Rows implements Iterator<Row> {
        private final Iterator<Row> from;
        private final Net net;
        private final List<Row> done = new ArrayList<>(BATCH);
        private int next;

        Rows(Iterator<Row> from, Net net) {
            this.from = from;
            this.net = net;
        }

        @Override
        public boolean hasNext() {
            if (next == done.size() && from.hasNext()) {
                List<Row> batch = new ArrayList<>(BATCH);
                while (batch.size() < BATCH && from.hasNext()) {
                    batch.add(from.next());
                }
                done.clear();
                next = 0;
                net.predict(batch, done);
            }
            return next < done.size();
        }

        @Override
        public Row next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return done.get(next++);
        }
    }
}
